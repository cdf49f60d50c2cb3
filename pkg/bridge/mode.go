package bridge

import "fmt"

// checkMode refuses a CiliumNode of another ipam mode, whose addresses another component allocates. In
// crd mode the agent leaves these fields unchanged, so those of a previous mode stay until the
// CiliumNode is created again. One that no operator has written to yet looks like one of mode crd
// (docs/agent.md, Limits).
func (n *ciliumNode) checkMode() error {
	const crd = "expected one of ipam mode crd. Nothing was written. Set ipam.mode=crd in Cilium; to remove what an earlier mode left behind, " +
		"the CiliumNode must be deleted once and the agent restarted"
	ipam := n.Spec.IPAM
	var has string
	switch {
	case len(ipam.PodCIDRs) > 0:
		has = fmt.Sprintf("spec.ipam.podCIDRs %v, as of mode cluster-pool or kubernetes", ipam.PodCIDRs)
	case len(ipam.Pools.Requested)+len(ipam.Pools.Allocated) > 0:
		has = "spec.ipam.pools, as of mode multi-pool"
	case len(n.Spec.ENI) > 0:
		has = "spec.eni, as of mode eni"
	case len(n.Spec.Azure) > 0:
		has = "spec.azure, as of mode azure"
	case len(n.Spec.AlibabaCloud) > 0:
		has = "spec.alibaba-cloud, as of mode alibabacloud"
	case n.Spec.InstanceID != "":
		has = fmt.Sprintf("spec.instance-id %q, as of a cloud's mode", n.Spec.InstanceID)
	case n.Status.IPAM.OperatorStatus.Error != "":
		has = fmt.Sprintf("status.ipam.operator-status %q, as of a mode in which Cilium's operator allocates addresses", n.Status.IPAM.OperatorStatus.Error)
	default:
		return nil
	}
	return &reconcileError{reasonWrongMode, fmt.Errorf("CiliumNode %s has %s; %s", n.Metadata.Name, has, crd)}
}
