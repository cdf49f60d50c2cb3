package options

import (
	"slices"
	"time"

	"github.com/spf13/pflag"
)

// Cluster is the options of the commands of delegated-ipam-bridge that read a whole cluster. The
// declarations describe the fields.
type Cluster struct {
	Kubeconfig string
	Output     string // OutputTable or OutputJSON
	Log
}

// NewCluster returns the options with their defaults, and the flags that set them and more.
func NewCluster(more ...Option) (*Cluster, *pflag.FlagSet) {
	c := &Cluster{}
	return c, flags(slices.Concat([]Option{
		clusterKubeconfig(&c.Kubeconfig),
		Output(&c.Output),
	}, c.Log.declare(""), more))
}

// Uninstall is the options of delegated-ipam-bridge uninstall. The declarations describe the fields.
type Uninstall struct {
	Kubeconfig, Namespace, Name string
	KeepDaemon                  bool
}

// NewUninstall returns the options with their defaults, and the flags that set them.
func NewUninstall() (*Uninstall, *pflag.FlagSet) {
	u := &Uninstall{}
	return u, flags([]Option{
		clusterKubeconfig(&u.Kubeconfig),
		{Name: "namespace", Value: Text(&u.Namespace, "name"), Default: "kube-system", Help: "namespace of the DaemonSets"},
		{Name: "name", Value: Text(&u.Name, "name"), Default: "delegated-ipam", Help: "name of the daemon's DaemonSet; the others are NAME-bridge, NAME-network and NAME-uninstall"},
		{Name: "keep-daemon", Value: Bool(&u.KeepDaemon), Help: "end when the addresses are released: the daemon is in Cilium's pod"},
	})
}

// maxExtraSlots limits --extra-slots, because each slot costs a call of the plugin.
const maxExtraSlots = 1024

// LostNodes is the options of delegated-ipam-bridge lost-nodes. The declarations describe the fields.
type LostNodes struct {
	Kubeconfig, Namespace, ConfigMap string
	Grace, MaxGap                    time.Duration
	MaxNodes, ExtraSlots             int
	Owners, CNINetworks              []string
	// WhereaboutsNamespace is empty if the plugin's store cannot be listed.
	WhereaboutsNamespace string
	File, Forget         string
	Log
}

// NewLostNodes returns the options with their defaults, and the flags that set them.
func NewLostNodes() (*LostNodes, *pflag.FlagSet) {
	l := &LostNodes{}
	return l, flags(l.declare())
}

func (l *LostNodes) declare() []Option {
	return slices.Concat([]Option{
		clusterKubeconfig(&l.Kubeconfig),
		{
			Name: "namespace", Value: Text(&l.Namespace, "name"), Default: "kube-system", Help: "namespace of --config-map",
			Valid: func() bool { return l.Namespace != "" }, Expected: "the name of a namespace",
		},
		{
			Name: "config-map", Value: Text(&l.ConfigMap, "name"), Default: "delegated-ipam-nodes", Help: "ConfigMap in which the Nodes are remembered; it must exist",
			Valid: func() bool { return l.ConfigMap != "" }, Expected: "the name of a ConfigMap",
		},
		{
			Name: "grace", Value: Duration(&l.Grace), Default: "1h0m0s", Help: "how long a Node must have been absent to be lost",
			Valid: func() bool { return l.Grace > 0 }, Expected: "more than 0s: longer than a machine can run, or a Node can come back, after its Node was deleted",
		},
		{
			Name: "max-gap", Value: Duration(&l.MaxGap), Default: "30m0s", Help: "longest time between two runs; after a longer one --grace begins anew, because a Node may have existed meanwhile",
			Valid: func() bool { return l.MaxGap > 0 && l.MaxGap < l.Grace }, Expected: "more than 0s and less than --grace: otherwise two runs that find a Node absent would suffice",
		},
		{Name: "max-nodes", Value: Count(&l.MaxNodes, 1), Default: "20", Help: "maximum number of lost nodes to list, those first that are lost longest"},
		{Name: "owners", Value: Texts(&l.Owners, "owners"), Default: "router,health,ingress", Help: "list of owners that each node may have, besides the slots of the bridge"},
		{Name: "extra-slots", Value: Count(&l.ExtraSlots, 0, maxExtraSlots), Default: "16", Help: "number of slots to add to those of the last pool, which may have grown since it was seen"},
		{Name: "whereabouts-namespace", Value: Text(&l.WhereaboutsNamespace, "name"), Help: "namespace of whereabouts' IPPools, with which lost nodes are compared (empty = do not compare)"},
		{
			Name: "cni-networks", Value: Texts(&l.CNINetworks, "names"), Help: "list of the CNI networks of the daemons, to whose container IDs the names belong",
			Valid: func() bool { return len(l.CNINetworks) > 0 }, Expected: "at least one name",
		},
		{Name: "file", Value: Path(&l.File), Help: "file to write for delegated-ipam reclaim (its --from; empty = stdout)"},
		{Name: "forget", Value: Path(&l.Forget), Help: "report of delegated-ipam reclaim (its --report): forget the nodes that it has reclaimed, and list none"},
	}, l.Log.declare(""))
}

// Validate reports each invalid option: its name, its value and the expected values.
func (l LostNodes) Validate() error { return validate(l.declare()) }
