package nodecheck

import (
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// Environment checks that doctor has the sidecar's mounts and user, so that both see the same
// files.
var Environment = check.Check{Name: "environment", Run: environment}

func environment(o *check.Observations) []check.Finding {
	e := o.Environment
	switch {
	case o.Config == nil:
		return nil
	case !e.Known:
		return []check.Finding{check.Pass("doctor runs as user %d; the user and container of the sidecar are unknown", e.UID)}
	case e.Peer.PID == 0, e.OtherMounts:
		return []check.Finding{check.Warn("run doctor in the sidecar's container (kubectl exec)",
			"the sidecar is in another container than doctor, so the files that doctor reads may not be the sidecar's")}
	case !e.SameUser():
		return []check.Finding{check.Warn(fmt.Sprintf("run doctor as user %d", e.Peer.UID),
			"the sidecar (PID %d) runs as user %d and doctor as user %d, so it is unknown whether the sidecar can read and write its directories", e.Peer.PID, e.Peer.UID, e.UID)}
	}
	return []check.Finding{check.Pass("doctor sees the files of the sidecar (PID %d) as its user %d", e.Peer.PID, e.Peer.UID)}
}
