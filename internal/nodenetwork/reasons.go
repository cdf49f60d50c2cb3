package nodenetwork

import (
	"errors"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/internal/nodenetwork/internal/render"
)

// Reasons why the file is not up to date (docs/install/ranges.md, Not ready).
const (
	reasonNoPodCIDR       = "NoPodCIDR"
	reasonNodeMissing     = "NodeMissing"
	reasonTemplateRefused = "TemplateRefused"
	reasonSharedRange     = "SharedRange"
	reasonNotPermitted    = "NotPermitted"
	reasonAPIUnavailable  = "APIServerUnavailable"
	reasonNotWritten      = "OutputNotWritten"
)

// reasons returns every reason.
func reasons() []string {
	return []string{
		reasonNoPodCIDR, reasonNodeMissing, reasonTemplateRefused, reasonSharedRange,
		reasonNotPermitted, reasonAPIUnavailable, reasonNotWritten,
	}
}

// problem is a reason why the file is not up to date, with a message that names the expectation and
// the remedy.
type problem struct{ reason, message string }

// Error returns the reason and the message.
func (p *problem) Error() string { return p.reason + ": " + p.message }

func (c *controller) nodeMissing() *problem {
	return &problem{reasonNodeMissing, fmt.Sprintf("Node %q does not exist, so this node has no range; expected the kubelet to register it under the name of --node-name. The file %s is removed",
		c.name, c.output)}
}

// renderProblem returns the problem of an error of render.Render.
func (c *controller) renderProblem(err error) *problem {
	var shared *render.SharedRangeError
	switch {
	case errors.Is(err, render.ErrNoPodCIDRs):
		return &problem{reasonNoPodCIDR, fmt.Sprintf("Node %q has no spec.podCIDRs, and the template %s needs them; expected the controller manager to assign them: "+
			"start it with --allocate-node-cidrs and --cluster-cidr (kubeadm init --pod-network-cidr), or use a template without podCIDRs (docs/install/ranges.md)", c.name, c.template)}
	case errors.As(err, &shared):
		return &problem{reasonSharedRange, fmt.Sprintf("template %s: %s", c.template, err)}
	}
	return &problem{reasonTemplateRefused, fmt.Sprintf("template %s: %s; correct the template (docs/install/ranges.md). A file that was rendered for this node before is kept", c.template, err)}
}

// apiProblem returns the problem of a failed request to the API server.
func apiProblem(err error) *problem {
	if notPermitted(err) {
		return &problem{reasonNotPermitted, fmt.Sprintf("%s; expected the rights to get, list and watch nodes, as deploy/kubernetes/network/rbac.yaml grants them", err)}
	}
	return &problem{reasonAPIUnavailable, fmt.Sprintf("cannot read the Node: %s; the file stays unchanged until the API server responds", err)}
}

func (c *controller) writeProblem(err error) *problem {
	return &problem{reasonNotWritten, fmt.Sprintf("cannot change --output %s: %s", c.output, err)}
}
