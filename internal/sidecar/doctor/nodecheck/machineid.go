package nodecheck

import (
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
)

// MachineID checks that the machine has an ID, by which records of another machine are
// detected.
var MachineID = check.Check{Name: "machine-id", Run: func(o *check.Observations) []check.Finding {
	if o.Config == nil {
		return nil
	}
	return machineID(journal.Host{}.MachineID())
}}

func machineID(id string) []check.Finding {
	if id == "" {
		return []check.Finding{check.Warn("mount the host's /etc/machine-id into the container, or create one (systemd-machine-id-setup)",
			"the machine has no ID: records of another machine, as after a disk was copied, are not detected")}
	}
	return []check.Finding{check.Pass("the machine has an ID")}
}
