package doctor

import (
	"fmt"
	"os"
	"strings"
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
