package bridge

import (
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
)

// checkMode refuses a CiliumNode of another ipam mode, whose addresses another component allocates.
func checkMode(n *ciliumnode.Node) error {
	const crd = "expected one of ipam mode crd. Nothing was written. Set ipam.mode=crd in Cilium; to remove the fields of an earlier mode, " +
		"delete the CiliumNode once and restart the agent"
	if has := n.OtherMode(); has != "" {
		return &reconcileError{reasonWrongMode, fmt.Errorf("CiliumNode %s has %s; %s", n.Metadata.Name, has, crd)}
	}
	return nil
}
