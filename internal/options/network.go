package options

import (
	"path/filepath"
	"slices"
)

// Network is the options of delegated-ipam-bridge network. The declarations describe the fields.
type Network struct {
	NodeName       string
	Kubeconfig     string
	Template       string
	Output         string
	SingleNode     bool
	Remove         bool
	MetricsAddress string
	Log
}

// NewNetwork returns the options with their defaults, and the set that fills them from flags. Of the
// environment only the default of --node-name depends.
func NewNetwork(env map[string]string) (*Network, *Set) {
	n := &Network{}
	return n, newSet("", n.declare(env))
}

func (n *Network) declare(env map[string]string) []Option {
	return slices.Concat([]Option{
		nodeName(&n.NodeName, env, "name of this Node", "the name of this Node; in a pod, set K8S_NODE_NAME from spec.nodeName"),
		kubeconfig(&n.Kubeconfig),
		{
			Name: "template", Value: Path(&n.Template), Default: "/etc/delegated-ipam/template/pods.conflist", Help: "template of the CNI network configuration list, in JSON with variables such as ${ranges} (docs/install/ranges.md)",
			Valid: func() bool { return filepath.IsAbs(n.Template) }, Expected: "an absolute path",
		},
		{
			Name: "output", Value: Path(&n.Output), Default: "/run/delegated-ipam/pods.conflist",
			Help: "file to write for the sidecar (its --cni-conf-file); its directory must exist, and be emptied by a reboot",
			// The sidecar reads a file with another extension as a single plugin.
			Valid: func() bool { return filepath.IsAbs(n.Output) && filepath.Ext(n.Output) == ".conflist" }, Expected: "an absolute path that ends in .conflist",
		},
		singleNode(&n.SingleNode),
		{Name: "remove", Value: Bool(&n.Remove), Help: "remove the output and end, for an uninstall; neither the template nor the API server is needed"},
		metricsAddress(&n.MetricsAddress, metricsAndProbes),
	}, n.Log.declare(Restart))
}

// Validate reports each invalid option: its name, its value and the expected values.
func (n Network) Validate() error { return validate(n.declare(nil)) }
