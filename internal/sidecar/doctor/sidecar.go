package doctor

import (
	"fmt"
	"os"
)

// checkSidecar checks that the sidecar responds and is ready.
func checkSidecar(o *Observations, r *report) {
	if o.StatusErr != nil {
		r.fail("start the sidecar, end one that hangs, or name its socket; without its response no leases are compared, and the other findings are those of a new start",
			"%s", o.StatusErr)
		return
	}
	if o.Status.Ready {
		r.ok("the sidecar responds and is ready")
	}
	reasons := o.Status.Reasons
	if !o.Status.Ready && len(reasons) == 0 {
		reasons = []string{"no reason is reported"}
	}
	for _, reason := range reasons {
		r.fail("fix the cause; `delegated-ipam status` shows each pool", "the sidecar is not ready: %s", reason)
	}
	if o.ListErr != nil {
		r.fail("run doctor as an authorized user (docs/operate/security.md); no leases could be compared",
			"the attachments cannot be listed: %s", o.ListErr)
	}
}

// checkOptions checks that the options are valid and equal to the sidecar's.
func checkOptions(o *Observations, r *report) {
	for _, err := range o.Options.Invalid {
		remedy := "correct the option: the sidecar does not start with it"
		if o.Config == nil {
			remedy += "; the checks that depend on the options were skipped"
		}
		r.fail(remedy, "%s", err)
	}
	for _, name := range o.Options.Unknown {
		r.warn("correct its name or remove it",
			"environment variable %s is not an option of delegated-ipam and has no effect", name)
	}
	for _, path := range o.Options.Skipped {
		r.warn("remove it", "%s is a directory or a backup file in --config-dir, and has no effect", path)
	}
	for _, difference := range o.Options.Differing {
		r.warn("restart the sidecar to apply the new value; doctor uses the sidecar's", "%s", difference)
	}
	switch {
	case !r.clean():
	case o.Options.FromSidecar:
		r.ok("the options of the running sidecar are used")
	default:
		r.ok("the options that serve would have here are used: flags, environment and --config-dir of doctor")
	}
}

// checkEnvironment checks that doctor has the sidecar's mounts and user, so that both see the same
// files.
func checkEnvironment(o *Observations, r *report) {
	peer, uid := o.peer, os.Geteuid()
	switch {
	case peer == nil:
		r.ok("doctor runs as user %d; the user and container of the sidecar are unknown", uid)
	case peer.PID == 0, o.otherMounts:
		r.warn("run doctor in the sidecar's container (kubectl exec)",
			"the sidecar is in another container than doctor, so the files that doctor reads may not be the sidecar's")
	case !o.sameUser():
		r.warn(fmt.Sprintf("run doctor as user %d", peer.UID),
			"the sidecar (PID %d) runs as user %d and doctor as user %d, so it is unknown whether the sidecar can read and write its directories", peer.PID, peer.UID, uid)
	default:
		r.ok("doctor sees the files of the sidecar (PID %d) as its user %d", peer.PID, peer.UID)
	}
}
