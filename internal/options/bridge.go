package options

import (
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// Bridge is the options of delegated-ipam-bridge. The declarations describe the fields.
type Bridge struct {
	NodeName, Kubeconfig, Pool string
	// Host names the socket of the daemon; Socket returns its path.
	Host                                        string
	MinAllocate, MaxAllocate, MaxAboveWatermark int
	// PreAllocate is 0 for auto.
	PreAllocate              int
	ReleaseExcess, WatchPods bool
	ReleaseDelay             time.Duration
	MetricsAddress           string
	Log
}

// NewBridge returns the options of the bridge with their defaults, and the flags that set them. Of the environment only
// the defaults of --node-name and --host depend.
func NewBridge(env map[string]string) (*Bridge, *pflag.FlagSet) {
	b := &Bridge{}
	return b, flags(b.declare(env))
}

func (b *Bridge) declare(env map[string]string) []Option {
	return slices.Concat([]Option{
		nodeName(&b.NodeName, env, "name of this node and of its CiliumNode", "the name of this node's CiliumNode; in a pod, set K8S_NODE_NAME from spec.nodeName"),
		kubeconfig(&b.Kubeconfig),
		Host(&b.Host, env),
		{
			Name: "pool", Value: Text(&b.Pool, "name"), Default: client.DefaultPool, Help: "pool of the daemon to acquire addresses from",
			Valid: func() bool { return b.Pool != "" }, Expected: "the name of a pool of the daemon, such as default",
		},
	}, b.declareSizes(), b.Log.declare(""), []Option{
		{
			// The default of Cilium's operator (its option of this name, in seconds).
			Name: "excess-ip-release-delay", Value: Duration(&b.ReleaseDelay), Default: "180s",
			Help:  "how long slots must be in excess before their release begins, which takes half as long again; more than four times the agent's --ipam-cilium-node-update-rate",
			Valid: func() bool { return b.ReleaseDelay > 0 }, Expected: "more than four times the agent's --ipam-cilium-node-update-rate, such as 180s",
		},
		{Name: "watch-pods", Value: Bool(&b.WatchPods), Default: "true", Help: "watch the pods of this node, to have an address for each before the agent reports the use of the others"},
		metricsAddress(&b.MetricsAddress, metricsAndProbes),
	})
}

// SharedPreAllocate is the number of free slots that auto keeps if other nodes use the range, too.
const SharedPreAllocate = 8

// declareSizes declares how many slots the node has. The defaults of --min-allocate and --pre-allocate are
// those that Cilium has for its own and for cloud pools (internal/defaults of Cilium, IPAMPreAllocation).
func (b *Bridge) declareSizes() []Option {
	return []Option{
		{Name: "min-allocate", Value: Count(&b.MinAllocate, 0), Default: "8", Help: "minimum number of slots; a slot is one address of each family"},
		{
			// Without a free slot the next pod waits forever: only a used address causes an acquisition.
			Name: "pre-allocate", Value: CountOrAuto(&b.PreAllocate), Default: auto,
			Help: "number of free slots to keep; auto: all that the node's pods can use if the plugin's range is the node's own, otherwise " + strconv.Itoa(SharedPreAllocate),
		},
		{Name: "max-allocate", Value: Count(&b.MaxAllocate, 0), Default: "0", Help: "maximum number of slots (0 = no limit)"},
		{
			// Cilium's default, 0, costs nine times the writes: each start and each end of a pod changes the pool.
			Name: "max-above-watermark", Value: Count(&b.MaxAboveWatermark, 0), Default: "8",
			Help: "number of slots to acquire beyond those that are missing, and of free slots above --pre-allocate to tolerate; without effect if --pre-allocate is auto and the plugin's range is the node's own",
		},
		{Name: "release-excess", Value: Bool(&b.ReleaseExcess), Default: "true", Help: "release the free slots above --pre-allocate and --max-above-watermark"},
	}
}

// Validate reports each invalid option: its name, its value and the expected values.
func (b Bridge) Validate() error { return validate(b.declare(nil)) }

// Network is the options of delegated-ipam-bridge network. The declarations describe the fields.
type Network struct {
	NodeName, Kubeconfig, Template, Output string
	SingleNode, Remove                     bool
	MetricsAddress                         string
	Log
}

// NewNetwork returns the options with their defaults, and the flags that set them. Of the environment only the default
// of --node-name depends.
func NewNetwork(env map[string]string) (*Network, *pflag.FlagSet) {
	n := &Network{}
	return n, flags(n.declare(env))
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
			Help: "file to write for the daemon (its --cni-conf-file); its directory must exist, and be emptied by a reboot",
			// The daemon reads a file with another extension as a single plugin.
			Valid: func() bool { return filepath.IsAbs(n.Output) && filepath.Ext(n.Output) == ".conflist" }, Expected: "an absolute path that ends in .conflist",
		},
		singleNode(&n.SingleNode),
		{Name: "remove", Value: Bool(&n.Remove), Help: "remove the output and end, for an uninstall; neither the template nor the API server is needed"},
		metricsAddress(&n.MetricsAddress, metricsAndProbes),
	}, n.Log.declare(""))
}

// Validate reports each invalid option: its name, its value and the expected values.
func (n Network) Validate() error { return validate(n.declare(nil)) }
