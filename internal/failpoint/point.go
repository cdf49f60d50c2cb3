// Package failpoint names the points at which a test kills the program: before and after each step
// that must survive a crash. Reach does nothing without the build tag "failpoints", which shipped
// programs do not have (docs/design/reliability.md). docs/design/decisions.md, Own code, explains why gofail is
// not used.
package failpoint

import "fmt"

// Point is a place in the program at which it can be killed.
type Point string

// The points, in the order in which a process may reach them.
const (
	// The state directory is about to be made; is made; its name is durable.
	DirMaking  Point = "dir.making"
	DirMade    Point = "dir.made"
	DirDurable Point = "dir.durable"
	// A directory or file in the state directory, or that itself, is about to be synced; is synced.
	DirSyncing Point = "dir.syncing"
	DirSynced  Point = "dir.synced"
	// The mode of a directory is about to lose the rights of group and others; has lost them.
	DirTightening Point = "dir.tightening"
	DirTightened  Point = "dir.tightened"

	// The lock file is about to be created or opened; is open; is locked and about to be written;
	// names its holder, before the rest of a longer name is cut off; is complete.
	LockOpening Point = "lock.opening"
	LockOpened  Point = "lock.opened"
	LockNaming  Point = "lock.naming"
	LockNamed   Point = "lock.named"
	LockCut     Point = "lock.cut"

	// An unfinished journal of a previous run is about to be removed; is removed.
	LeftoverRemoving Point = "leftover.removing"
	LeftoverRemoved  Point = "leftover.removed"

	// quarantine/ is about to be made; exists; has the file or record; a directory is synced.
	QuarantineMaking Point = "quarantine.making"
	QuarantineMade   Point = "quarantine.made"
	QuarantineMoved  Point = "quarantine.moved"
	QuarantineSynced Point = "quarantine.synced"

	// A new journal is about to be made; is empty; has all records; is synced; is about to get its name; has it; the
	// name is durable.
	JournalMaking  Point = "journal.making"
	JournalMade    Point = "journal.made"
	JournalFilled  Point = "journal.filled"
	JournalSynced  Point = "journal.synced"
	JournalNaming  Point = "journal.naming"
	JournalRenamed Point = "journal.renamed"
	JournalDurable Point = "journal.durable"

	// Changes are about to be committed; are durable. So is a commit without a change, and one of removals for which no
	// caller waits.
	CommitBegins   Point = "commit.begins"
	CommitDurable  Point = "commit.durable"
	ProbeBegins    Point = "probe.begins"
	ProbeDurable   Point = "probe.durable"
	RemovalBegins  Point = "removal.begins"
	RemovalDurable Point = "removal.durable"

	// The lock file of plugin calls is about to be created or opened; is open.
	PluginLockOpening Point = "plugin-lock.opening"
	PluginLockOpened  Point = "plugin-lock.opened"

	// A plugin process is about to be started; runs and has its configuration; has ended.
	PluginStarting Point = "plugin.starting"
	PluginStarted  Point = "plugin.started"
	PluginEnded    Point = "plugin.ended"

	// host-local in this process: a directory is about to be made; exists; its name is durable. The file of a lease is
	// about to be created; is empty; is complete; the last reserved address is written. It is about to be removed; is
	// removed. The changes of a call are about to be synced; are durable.
	LeasesMaking  Point = "leases.making"
	LeasesMade    Point = "leases.made"
	LeasesDurable Point = "leases.durable"
	LeaseMaking   Point = "lease.making"
	LeaseMade     Point = "lease.made"
	LeaseWritten  Point = "lease.written"
	LeaseReserved Point = "lease.reserved"
	LeaseRemoving Point = "lease.removing"
	LeaseRemoved  Point = "lease.removed"
	LeaseSyncing  Point = "lease.syncing"
	LeaseSynced   Point = "lease.synced"

	// A file or directory is about to be removed by uninstall; is removed.
	UninstallRemoving Point = "uninstall.removing"
	UninstallRemoved  Point = "uninstall.removed"

	// A DEL of the spool is carried out, and its file is about to be removed; is removed.
	SpoolDone    Point = "spool.done"
	SpoolRemoved Point = "spool.removed"

	// The history is about to be opened or created; is open. An event is about to be written; is written, perhaps to a new
	// file.
	HistoryOpening Point = "history.opening"
	HistoryOpened  Point = "history.opened"
	HistoryWriting Point = "history.writing"
	HistoryWritten Point = "history.written"

	// A request has its outcome, and its response is about to be sent.
	ResponseDue Point = "response.due"
)

// All returns every point, in the order of their declaration.
func All() []Point {
	return []Point{
		DirMaking, DirMade, DirDurable, DirSyncing, DirSynced, DirTightening, DirTightened,
		LockOpening, LockOpened, LockNaming, LockNamed, LockCut,
		LeftoverRemoving, LeftoverRemoved,
		QuarantineMaking, QuarantineMade, QuarantineMoved, QuarantineSynced,
		JournalMaking, JournalMade, JournalFilled, JournalSynced, JournalNaming, JournalRenamed, JournalDurable,
		CommitBegins, CommitDurable, ProbeBegins, ProbeDurable, RemovalBegins, RemovalDurable,
		PluginLockOpening, PluginLockOpened,
		PluginStarting, PluginStarted, PluginEnded,
		LeasesMaking, LeasesMade, LeasesDurable, LeaseMaking, LeaseMade, LeaseWritten, LeaseReserved,
		LeaseRemoving, LeaseRemoved, LeaseSyncing, LeaseSynced,
		UninstallRemoving, UninstallRemoved,
		SpoolDone, SpoolRemoved,
		HistoryOpening, HistoryOpened, HistoryWriting, HistoryWritten,
		ResponseDue,
	}
}

// EnvPlan is the environment variable with the path of the plan file. Without that file nothing is
// counted, so that a test can bring a process to the begin of its scenario first.
const EnvPlan = "FAILPOINT_PLAN"

// VisitsFile returns the path of the file to which every process with the plan appends its visits,
// one line with the name of the point each.
func VisitsFile(planFile string) string { return planFile + ".visits" }

// Plan is the visit at which a process is killed, counted from 1 since the plan file exists, over
// all processes. The zero Plan only counts.
type Plan struct {
	Point Point
	Visit int
}

// String returns the content of a plan file, such as "commit.durable:2"; empty for the zero Plan.
func (p Plan) String() string {
	if p == (Plan{}) {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.Point, p.Visit)
}
