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

func reasons() []string {
	return []string{
		reasonNoPodCIDR, reasonNodeMissing, reasonTemplateRefused, reasonSharedRange,
		reasonNotPermitted, reasonAPIUnavailable, reasonNotWritten,
	}
}

// problem is a reason why the file is not up to date, with a message that names the expectation and
// the remedy.
type problem struct{ reason, message string }

func (p *problem) Error() string { return p.reason + ": " + p.message }

func problemf(reason, format string, args ...any) *problem {
	return &problem{reason, fmt.Sprintf(format, args...)}
}

// renderProblem returns the problem of an error of render.Render.
func (c *controller) renderProblem(err error) *problem {
	var shared *render.SharedRangeError
	switch {
	case errors.Is(err, render.ErrNoPodCIDRs):
		return problemf(reasonNoPodCIDR, "Node %q has no spec.podCIDRs, and the template %s needs them; expected the controller manager to assign them: "+
			"start it with --allocate-node-cidrs and --cluster-cidr (kubeadm init --pod-network-cidr), or use a template without podCIDRs (docs/install/ranges.md)", c.name, c.template)
	case errors.As(err, &shared):
		return problemf(reasonSharedRange, "template %s: %s", c.template, err)
	}
	return problemf(reasonTemplateRefused, "template %s: %s; correct the template (docs/install/ranges.md). A file that was rendered for this node before is kept", c.template, err)
}

func apiProblem(err error) *problem {
	if notPermitted(err) {
		return problemf(reasonNotPermitted, "%s; expected the rights to get, list and watch nodes, as deploy/kubernetes/network/rbac.yaml grants them", err)
	}
	return problemf(reasonAPIUnavailable, "cannot read the Node: %s; the file stays unchanged until the API server responds", err)
}
