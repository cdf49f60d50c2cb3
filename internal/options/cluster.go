package options

import "slices"

// Output formats of a command (--output).
const (
	OutputTable = "table"
	OutputJSON  = "json"
)

// Cluster is the options of the commands of delegated-ipam-bridge that read a whole cluster. The
// declarations describe the fields.
type Cluster struct {
	Kubeconfig string
	Output     string // OutputTable or OutputJSON
	Log
}

// NewCluster returns the options with their defaults, and the set that fills them from flags.
func NewCluster(more ...Option) (*Cluster, *Set) {
	c := &Cluster{}
	return c, newSet("", slices.Concat([]Option{
		clusterKubeconfig(&c.Kubeconfig),
		Output(&c.Output),
	}, c.Log.declare(Restart), more))
}

// SharedRange declares that not every node takes its addresses from its podCIDRs.
func SharedRange(target *bool) Option {
	return Option{
		Name: "shared-range", Value: Bool(target),
		Help: "do not compare addresses with podCIDRs: the plugin is cluster-wide, or some nodes have other ranges",
	}
}

// Output declares the output format of a command.
func Output(target *string) Option {
	return Option{Name: "output", Short: "o", Value: Choice(target, OutputTable, OutputJSON), Default: OutputTable, Help: "output format"}
}

// clusterKubeconfig declares the credentials of a command that an operator may run outside a pod.
func clusterKubeconfig(target *string) Option {
	return Option{
		Name: "kubeconfig", Value: Path(target),
		Help: "kubeconfig file for the API server (empty = $KUBECONFIG, else ~/.kube/config, else the service account of the pod)",
	}
}
