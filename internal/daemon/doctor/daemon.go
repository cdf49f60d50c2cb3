package doctor

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/ended"
)

// checkDaemon checks that the daemon responds and is ready.
func checkDaemon(o *Observations, r *report) {
	if o.StatusErr != nil {
		r.fail("start the daemon, end one that hangs, name its socket, or run doctor as an authorized user; without its response no leases are compared, and the other findings are those of a new start",
			"%s", o.StatusErr)
		return
	}
	if o.Status.Ready {
		r.ok("the daemon responds and is ready")
	}
	for _, reason := range o.Status.Reasons { // one at least unless it is ready
		r.fail("fix the cause; `delegated-ipam status` shows each pool", "the daemon is not ready: %s", reason)
	}
	if o.ListErr != nil {
		r.fail("run doctor as an authorized user (docs/operate/security.md); no leases could be compared",
			"the attachments cannot be listed: %s", o.ListErr)
	}
}

// checkOptions checks that the options are valid and equal to the daemon's.
func checkOptions(o *Observations, r *report) {
	if err := o.Options.Invalid; err != nil {
		remedy := "correct the option: the daemon does not start with it"
		if o.Config == nil {
			remedy += "; the checks that depend on the options were skipped"
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			r.fail(remedy, "%s", line)
		}
	}
	for _, name := range o.Options.Unknown {
		r.warn("correct its name or remove it",
			"environment variable %s is not an option of delegated-ipam and has no effect", name)
	}
	for _, path := range o.Options.Skipped {
		r.warn("remove it", "%s is a directory or a backup file in --config-dir, and has no effect", path)
	}
	for _, difference := range o.Options.Differing {
		r.warn("restart the daemon to apply the new value; doctor uses the daemon's", "%s", difference)
	}
	if o.Options.FromDaemon {
		r.clean("the options of the running daemon are used")
	}
	r.clean("the options that serve would have here are used: flags, environment and --config-dir of doctor")
}

// checkEnvironment checks that doctor has the daemon's mounts and user, so that both see the same
// files.
func checkEnvironment(o *Observations, r *report) {
	peer, uid := o.peer, os.Geteuid()
	switch {
	case peer == nil:
		r.ok("doctor runs as user %d; the user and container of the daemon are unknown", uid)
	case peer.PID == 0, o.otherMounts:
		r.warn("run doctor in the daemon's container (kubectl exec)",
			"the daemon is in another container than doctor, so the files that doctor reads may not be the daemon's")
	case !o.sameUser():
		r.warn(fmt.Sprintf("run doctor as user %d", peer.UID),
			"the daemon (PID %d) runs as user %d and doctor as user %d, so it is unknown whether the daemon can read and write its directories", peer.PID, peer.UID, uid)
	default:
		r.ok("doctor sees the files of the daemon (PID %d) as its user %d", peer.PID, peer.UID)
	}
}

// The other checks of this file read the status and the list of the daemon.

// checkAttachments checks that no attachment is lost, outside the ranges or blocked by its plugin, and
// that no record is in quarantine. It relies on the report of the daemon: CHECK needs the recorded
// invocation, and with some plugins it changes their allocations (docs/reference/plugins.md, What
// to configure).
func checkAttachments(o *Observations, r *report) {
	for _, a := range o.After {
		r.pool = a.Pool
		checkAttachment(a, r)
	}
	r.pool = ""
	for _, q := range o.Status.Quarantined {
		r.warn("inspect the file; the addresses of its owner are leases that are not listed, or are found when the owner requests them again",
			"record %s is unusable: %s", q.File, q.Reason)
	}
	if o.ListErr == nil {
		r.clean("none of %d attachments is lost, outside the ranges, blocked by the plugin or unreadable", len(o.After))
	}
}

func checkAttachment(a *models.Attachment, r *report) {
	switch {
	case a.Lost:
		remedy := "allocate for the owner, which gets its addresses again, or others"
		if attachment.OfContainer(a.Owner) {
			remedy = "recreate the pod"
		}
		r.fail(remedy,
			"the plugin no longer holds the addresses of owner %q (container ID %s)", a.Owner, a.ContainerID).Owner = a.Owner
	case a.Range == models.AttachmentRangeOutside:
		remedy := "restart the owner, which gets another address"
		switch {
		case attachment.OfContainer(a.Owner):
			remedy = "recreate the pod"
		case strings.HasPrefix(a.Owner, "ciliumnode-"):
			remedy = "recreate the pods that use it: the bridge releases it when they are gone"
		}
		var ips []string
		for _, at := range a.Addresses {
			ips = append(ips, at.IP)
		}
		r.fail(remedy+" (docs/install/ranges.md, Addresses outside the ranges)",
			"owner %q has %s outside the ranges of the present configuration; another node may have it", a.Owner, strings.Join(ips, " and ")).Owner = a.Owner
	case a.LastError != "" && (a.State == models.AttachmentStateReleasing || a.State == models.AttachmentStateAdding):
		r.warn("fix the cause; the daemon retries automatically. If the plugin refuses forever: stop it and run `delegated-ipam journal delete OWNER --yes`",
			"the attachment of owner %q (container ID %s) is %s: %s", a.Owner, a.ContainerID, a.State, a.LastError).Owner = a.Owner
	}
}

// spoolDelay is how long a DEL may stay in the spool of a daemon that runs.
const spoolDelay = time.Minute

// checkSpool checks that the DELs that runtimes could not deliver are carried out. It reports nothing of an empty spool.
func checkSpool(o *Observations, r *report) {
	s := o.Status.Spool
	if s == nil {
		return
	}
	if s.Quarantined > 0 {
		r.warn("release the addresses of their containers by the plugin if it still holds them, then remove the files in "+s.Directory+"/quarantine",
			"%d files of the spool were moved aside, because they are damaged or of another origin", s.Quarantined)
	}
	switch {
	case s.Pending > 0 && ago(s.Oldest) > spoolDelay:
		r.warn("see the reason; the daemon repeats each DEL", "%d DELs of containers wait in %s, the oldest for %s: %s", s.Pending, s.Directory, ago(s.Oldest), s.Error)
	case s.Error != "":
		r.warn("see the reason; a DEL of a runtime fails while the daemon is away", "the spool: %s", s.Error)
	case s.Pending > 0:
		r.clean("%d DELs of containers wait in %s for less than %s", s.Pending, s.Directory, spoolDelay)
	}
}

// ago returns how long ago a time was; zero if it is unknown.
func ago(t *strfmt.DateTime) time.Duration {
	if t == nil {
		return 0
	}
	return time.Since(time.Time(*t)).Round(time.Second)
}

// checkEndedContainers checks that the addresses of containers that ended without a DEL are released.
func checkEndedContainers(o *Observations, r *report) {
	s := o.Status.EndedContainers
	switch {
	case s == nil:
		return
	case s.Pending > 0 && s.DelaySeconds == 0:
		r.warn("set --missing-netns-release-delay, such as 10m; or see `delegated-ipam list`, and release those that do not run",
			"%d containers ended without a DEL, the first for %s, and keep their addresses", s.Pending, ago(s.Oldest))
	case s.Pending > 0:
		r.ok("%d containers ended without a DEL, the first for %s; they are released after %s", s.Pending, ago(s.Oldest), time.Duration(s.DelaySeconds)*time.Second)
	}
	asked := s.Runtime != "" && ago(s.Reported) <= ended.MaxReportAge
	if len(s.HiddenDirectories) > 0 && !asked && (s.Pending > 0 || s.DelaySeconds > 0) {
		r.warn("mount the directory from the host with mountPropagation HostToContainer (hostPaths.netns), or run delegated-ipam-cri",
			"the network namespaces of containers in %s cannot be seen, so a container that ended without a DEL keeps its address", strings.Join(s.HiddenDirectories, ", "))
	}
}

// fewFree is the part of a range of which an alert warns, too (DelegatedIPAMRangeAlmostFull).
const fewFree = 0.1

// checkFreeAddresses checks that the ranges of a pool have free addresses. Nothing is known without a daemon, and of
// plugins whose ranges are unknown.
func checkFreeAddresses(_ *Observations, p pool, r *report) {
	const remedy = "release what no owner uses (`delegated-ipam list`, and the leases without an owner above), extend the range, or run fewer pods on this node"
	known := 0
	for _, a := range p.status.Addresses {
		if a.Total == nil || a.Free == nil {
			continue
		}
		known++
		switch {
		case *a.Free < 1:
			r.fail(remedy, "all %.0f %s addresses are used", *a.Total, a.Family)
		case *a.Free < fewFree**a.Total:
			r.warn(remedy, "%.0f of %.0f %s addresses are free", *a.Free, *a.Total, a.Family)
		}
	}
	if known > 0 {
		r.clean("at least a tenth of the addresses of each family is free")
	}
}
