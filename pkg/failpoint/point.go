// Package failpoint names the moments at which a test kills the program: before
// and after each step that must survive a crash. In the program that is shipped
// they are nothing: only the build tag "failpoints" makes Reach do something
// (docs/reliability.md).
package failpoint

// Point is a moment in the program.
type Point string

// The points, in the order in which a process may come by them.
const (
	// A folder of the journal is about to be made, is made, is synced into its parent.
	FolderMaking  Point = "folder.making"
	FolderMade    Point = "folder.made"
	FolderDurable Point = "folder.durable"
	// Group and others are about to lose their rights on a folder; have lost them.
	FolderTightening Point = "folder.tightening"
	FolderTightened  Point = "folder.tightened"

	// The lock file is about to be opened and made; is open; is locked and about to
	// be written; names its holder, before the rest of an older name is cut off; is done.
	LockOpening Point = "lock.opening"
	LockOpened  Point = "lock.opened"
	LockNaming  Point = "lock.naming"
	LockNamed   Point = "lock.named"
	LockCut     Point = "lock.cut"

	// A temporary file of a previous run is about to be removed; is removed.
	LeftoverRemoving Point = "leftover.removing"
	LeftoverRemoved  Point = "leftover.removed"

	// A file is about to be moved to quarantine/; is moved; is synced there; and
	// is synced away from where it was.
	QuarantineMoving   Point = "quarantine.moving"
	QuarantineMoved    Point = "quarantine.moved"
	QuarantineArrived  Point = "quarantine.arrived"
	QuarantineComplete Point = "quarantine.complete"

	// A record, or the marker of the state folder, is about to be written; its file is made;
	// has the data; is synced; has its name; and the folder is synced.
	WriteBegins  Point = "write.begins"
	WriteMade    Point = "write.made"
	WriteWritten Point = "write.written"
	WriteSynced  Point = "write.synced"
	WriteRenamed Point = "write.renamed"
	WriteDurable Point = "write.durable"

	// A record is about to be removed; is removed; and the folder is synced.
	RemoveBegins  Point = "remove.begins"
	RemoveDone    Point = "remove.done"
	RemoveDurable Point = "remove.durable"

	// The journal is about to be tried; the file for that is made; has the data and
	// is synced; is gone again.
	ProbeBegins  Point = "probe.begins"
	ProbeMade    Point = "probe.made"
	ProbeWritten Point = "probe.written"
	ProbeGone    Point = "probe.gone"

	// The lock file of plugin calls is about to be opened and made; is open.
	PluginLockOpening Point = "plugin-lock.opening"
	PluginLockOpened  Point = "plugin-lock.opened"

	// A plugin process is about to be started; runs; is about to be told its
	// configuration if it stood by; has been told; has ended.
	PluginStarting Point = "plugin.starting"
	PluginStarted  Point = "plugin.started"
	PluginTelling  Point = "plugin.telling"
	PluginTold     Point = "plugin.told"
	PluginEnded    Point = "plugin.ended"

	// A request has its outcome, and its answer is about to be sent.
	AnswerDue Point = "answer.due"
)

// All returns every point, in the order of their declaration.
func All() []Point {
	return []Point{
		FolderMaking, FolderMade, FolderDurable, FolderTightening, FolderTightened,
		LockOpening, LockOpened, LockNaming, LockNamed, LockCut,
		LeftoverRemoving, LeftoverRemoved,
		QuarantineMoving, QuarantineMoved, QuarantineArrived, QuarantineComplete,
		WriteBegins, WriteMade, WriteWritten, WriteSynced, WriteRenamed, WriteDurable,
		RemoveBegins, RemoveDone, RemoveDurable,
		ProbeBegins, ProbeMade, ProbeWritten, ProbeGone,
		PluginLockOpening, PluginLockOpened,
		PluginStarting, PluginStarted, PluginTelling, PluginTold, PluginEnded,
		AnswerDue,
	}
}
