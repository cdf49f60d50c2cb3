package options

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// Daemon is the options of delegated-ipam serve. The declarations describe the fields.
type Daemon struct {
	SocketPath, SocketGroup string
	SocketMode              fs.FileMode
	AllowUIDs, AllowGIDs    []int
	// HealthDetails is HealthAll or HealthAuthorized.
	HealthDetails string

	StateDir, CNIConfDir, CNIConfFile, CNINetwork string
	CNIBinDirs                                    []string
	// IPAMDefaultIPPool is the name of the default pool.
	IPAMDefaultIPPool string
	// Pools maps pools to the names of their networks. Complete adds the default pool, whose
	// network is CNINetwork, empty for the first that delegates IPAM.
	Pools        map[string]string
	Owners       []string
	RetireOwners bool

	NodeName, PodName                string
	EnableIPv4, EnableIPv6           bool
	LocalRouterIPv4, LocalRouterIPv6 netip.Addr
	IPv4Range, IPv6Range             netip.Prefix
	// ExcludeAddresses are not allocated; a bare address is a prefix of full length.
	ExcludeAddresses []netip.Prefix

	// HostLocal is a value of plugin.Options.HostLocal.
	HostLocal                             string
	PluginProfiles, PluginEnv             []string
	AcceptUnsafePlugin, SingleNode        bool
	PluginTimeout, VerifyInterval         time.Duration
	MaxPluginProcesses, MaxQueuedRequests int
	MaxAttachments                        int
	CNINetNS, CNIIfName                   string

	ReleaseDelay, IPAMExpiration time.Duration
	WarmLeases                   int
	MissingNetNSReleaseDelay     time.Duration
	MetricsAddress, ConfigDir    string
	Log

	// InPod reports whether the process runs in a container of Kubernetes, of which the kubelet
	// sets $KUBERNETES_SERVICE_HOST. It is not an option.
	InPod bool
}

// daemonPrefix begins the environment variable of each option of the daemon.
const daemonPrefix = "DELEGATED_IPAM_"

// Upper limits: a higher value is a mistake, and would exhaust the memory of the node.
const (
	maxProcesses = 1024
	// maxWarmLeases is more than a node has pods.
	maxWarmLeases = 1024
	maxQueued     = 1 << 20
)

// NewDaemon returns the options of the daemon with their defaults, and the set that fills them
// from flags, environment and --config-dir.
func NewDaemon(env map[string]string) (*Daemon, *Set) {
	s := &Daemon{InPod: env["KUBERNETES_SERVICE_HOST"] != ""}
	return s, &Set{flags: flags(s.declare(env))}
}

func (s *Daemon) declare(env map[string]string) []Option {
	return slices.Concat(s.declareSocket(), s.declareCNI(), s.declareAddresses(env), s.declarePlugin(), s.Log.declare("; SIGHUP reads it again"), []Option{
		metricsAddress(&s.MetricsAddress, "TCP address to serve /metrics on, and nothing else; :port is loopback only (empty = none)"),
		{Name: configDir, Value: Path(&s.ConfigDir), Help: "directory with one file per option, such as a mounted ConfigMap"},
	})
}

func (s *Daemon) declareSocket() []Option {
	return []Option{
		{
			Name: "socket-path", Value: Path(&s.SocketPath), Default: client.DefaultSocket, Help: "unix socket to serve the API on, at most 107 bytes",
			Valid: func() bool { return filepath.IsAbs(s.SocketPath) }, Expected: "an absolute path",
		},
		{Name: "socket-mode", Value: Mode(&s.SocketMode), Default: "0660", Help: "permission bits of the socket, octal"},
		{Name: "socket-group", Value: Text(&s.SocketGroup, "group"), Help: "group of the socket, name or number (empty = group of the process)"},
		{
			Name: "allow-uids", Value: IDs(&s.AllowUIDs, "uids", "user IDs, numbers separated by commas"),
			Help: "list of user IDs that may call the API besides root and the daemon's own user",
		},
		{
			Name: "allow-gids", Value: IDs(&s.AllowGIDs, "gids", "group IDs, numbers separated by commas"),
			Help: "list of group IDs whose members may call the API",
		},
		{
			Name: "health-details", Value: Choice(&s.HealthDetails, HealthAll, HealthAuthorized), Default: HealthAll,
			Help: "recipients of the details of the status: each user who can connect, or only authorized callers of the API; others get its state",
		},
	}
}

func (s *Daemon) declareCNI() []Option {
	return []Option{
		{
			Name: "state-dir", Value: Path(&s.StateDir), Default: "/var/lib/delegated-ipam", Help: "directory of the journal; it must outlive the process",
			Valid: func() bool { return filepath.IsAbs(s.StateDir) }, Expected: "an absolute path",
		},
		{
			Name: "cni-conf-dir", Value: Path(&s.CNIConfDir), Default: "/etc/cni/net.d", Help: "directory to search for the CNI configuration, as a container runtime does",
			Valid: func() bool { return s.CNIConfDir != "" || s.CNIConfFile != "" }, Expected: "a directory, here or a file in --cni-conf-file",
		},
		{Name: "cni-conf-file", Value: Path(&s.CNIConfFile), Help: "CNI configuration file to read instead of searching --cni-conf-dir"},
		{
			Name: "cni-bin-dir", Value: Texts(&s.CNIBinDirs, "paths"), Default: "/opt/cni/bin", Help: "list of directories to search for CNI plugins, in this order",
			Valid: func() bool { return !slices.Contains(s.CNIBinDirs, "") }, Expected: "directories of CNI plugins, none of them empty",
		},
		{Name: "cni-network", Value: Text(&s.CNINetwork, "name"), Help: "CNI network of the default pool, or NETWORK/TYPE for the ipam of one plugin of its list (empty = the first network that delegates IPAM)"},
		{
			Name: "ipam-default-ip-pool", Value: Text(&s.IPAMDefaultIPPool, "name"), Default: client.DefaultPool, Help: "name of the default pool, that of a request without one" + asAgent,
			Valid: func() bool { return poolName.MatchString(s.IPAMDefaultIPPool) }, Expected: expectedPoolName,
		},
		{Name: "pool", Value: Pools(&s.Pools), Help: "list of further pools and their CNI networks; the default pool always exists"},
		{
			Name: "owners", Value: Texts(&s.Owners, "patterns"), Default: "*", Help: `list of patterns of owners that may have addresses, where "*" matches any text`,
			Valid: func() bool {
				_, err := ownermatch.Parse(s.Owners)
				return err == nil
			},
			Expected: "names or patterns such as router or kube-system/*, none of them empty",
		},
		{Name: "retire-owners", Value: Bool(&s.RetireOwners), Help: "release at start the addresses of owners that --owners does not match any more"},
	}
}

// asAgent ends the help of an option that has to have the value that it has for the agent.
const asAgent = " (as in cilium-agent)"

func (s *Daemon) declareAddresses(env map[string]string) []Option {
	return []Option{
		nodeName(&s.NodeName, env, "name of this node, from which container IDs are made", "the name of this node"),
		podName(&s.PodName, env),
		{
			Name: "enable-ipv4", Value: Bool(&s.EnableIPv4), Default: "true", Help: "allocate IPv4 addresses" + asAgent,
			Valid: func() bool { return s.EnableIPv4 || s.EnableIPv6 }, Expected: "true here or for --enable-ipv6: with both families off there is nothing to allocate",
		},
		{Name: "enable-ipv6", Value: Bool(&s.EnableIPv6), Default: "true", Help: "allocate IPv6 addresses" + asAgent},
		{
			Name: "local-router-ipv4", Help: "IPv4 address of cilium_host to report to clients" + asAgent,
			Value: HostAddress(&s.LocalRouterIPv4, netip.Addr.Is4, "an IPv4 address that a host can have"),
		},
		{
			Name: "local-router-ipv6", Help: "IPv6 address of cilium_host to report to clients" + asAgent,
			Value: HostAddress(&s.LocalRouterIPv6, isIPv6, "an IPv6 address that a host can have"),
		},
		{
			Name: "ipv4-range", Help: "IPv4 range of the node to report to clients" + asAgent,
			Value: Prefix(&s.IPv4Range, netip.Addr.Is4, "an IPv4 prefix such as 10.0.0.0/24"),
		},
		{
			Name: "ipv6-range", Help: "IPv6 range of the node to report to clients" + asAgent,
			Value: Prefix(&s.IPv6Range, isIPv6, "an IPv6 prefix such as fd00::/64"),
		},
		{
			Name: "exclude-addresses", Value: Addresses(&s.ExcludeAddresses),
			Help: "list of addresses and prefixes not to allocate, such as those of the node; a request for which the plugin returns one fails",
		},
		{
			// The default is Cilium's, too (internal/defaults of Cilium, IPAMExpiration).
			Name: "ipam-expiration", Value: Timeout(&s.IPAMExpiration), Default: "10m", Help: "time to confirm an address that was allocated with an expiration",
		},
		{Name: "release-delay", Value: Delay(&s.ReleaseDelay), Default: "0s", Help: "how long a released address is kept before it is returned to the plugin (0s = return it immediately)"},
		{
			Name: "warm-leases", Value: Count(&s.WarmLeases, 0, maxWarmLeases), Default: "0",
			Help: "number of leases to acquire ahead of pods in each pool whose plugin returns the same to every pod, so that pods wait for no plugin call (docs/operate/warm-leases.md)",
		},
		{
			Name: "missing-netns-release-delay", Value: Delay(&s.MissingNetNSReleaseDelay), Default: "0s",
			Help: "how long a pod keeps its addresses after its network namespace is missing (0s = until its runtime releases them; docs/install/pods.md)",
		},
		{
			// The agent asks for the two families of an owner, and again after a failure, within
			// seconds: one check serves all of these. An address that the plugin has lost is still
			// noticed soon.
			Name: "verify-interval", Value: Delay(&s.VerifyInterval), Default: "10s", Help: "how long a successful check of an address is cached (0s = check every request)",
		},
	}
}

// isIPv6 excludes IPv4 addresses in IPv6 form.
func isIPv6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

func (s *Daemon) declarePlugin() []Option {
	return []Option{
		{Name: "plugin-profile", Value: Texts(&s.PluginProfiles, "files"), Help: "list of files with profiles of further plugin types"},
		{
			Name: "host-local", Value: Choice(&s.HostLocal, "auto", "embedded", "program"), Default: "auto",
			Help: "how host-local is run: auto is in the daemon's own process unless another program has that name (docs/reference/plugins.md), embedded always, program never",
		},
		{
			Name: "accept-unsafe-plugin", Value: Bool(&s.AcceptUnsafePlugin),
			Help: "use a plugin although its profile says that it loses or duplicates addresses (docs/reference/plugins.md)",
		},
		singleNode(&s.SingleNode),
		{
			Name: "plugin-timeout", Value: Timeout(&s.PluginTimeout), Default: "30s",
			Help: "time limit of one plugin call; two calls should fit into the 80s limit of a request",
		},
		{Name: "plugin-env", Value: Texts(&s.PluginEnv, "names"), Help: "list of environment variables to pass to plugins"},
		{
			// A plugin call is mostly start-up and disk: two for each CPU keep both busy. With
			// fewer than four, one slow plugin would stop all others.
			Name: "max-plugin-processes", Value: Count(&s.MaxPluginProcesses, 1, maxProcesses), Default: strconv.Itoa(max(4, 2*runtime.GOMAXPROCS(0))),
			DefaultText: "2 per CPU, at least 4", Help: "maximum number of concurrent plugin calls of each pool; a quarter is reserved for pods, and another one for pods and the agent",
		},
		{Name: "max-queued-requests", Value: Count(&s.MaxQueuedRequests, 1, maxQueued), Default: "1024", Help: "maximum number of waiting requests, divided in the same way, of one user besides root a quarter; others are rejected with Retry-After"},
		{
			Name: "max-attachments", Value: Count(&s.MaxAttachments, 1, maxQueued), Default: "10000",
			Help: "maximum number of attachments without those of pods, of users besides root three quarters, of one of them a half; further owners are rejected",
		},
		{
			Name: "cni-netns", Value: Text(&s.CNINetNS, "path"), Help: "CNI_NETNS of plugin calls (empty = from the plugin's profile)",
		},
		{
			Name: "cni-ifname", Value: Text(&s.CNIIfName, "name"), Default: "eth0", Help: "CNI_IFNAME of plugin calls",
			Valid: func() bool { return isIfName(s.CNIIfName) }, Expected: "an interface name of 1 to 15 characters, such as eth0",
		},
	}
}

// ifName is what Linux and the CNI specification (section 2, CNI_IFNAME) accept.
var ifName = regexp.MustCompile(`^[^\s/:\x00-\x1f]{1,15}$`)

func isIfName(name string) bool { return ifName.MatchString(name) && name != "." && name != ".." }

// Complete returns the options with the default pool among the pools and with absolute paths. The
// error is that --pool contradicts --cni-network or --ipam-default-ip-pool, that --socket-path names an
// abstract socket, or that the working directory is unknown.
func (s Daemon) Complete() (Daemon, error) {
	defaultPool := cmp.Or(s.IPAMDefaultIPPool, client.DefaultPool)
	all := map[string]string{defaultPool: s.CNINetwork}
	for name, network := range s.Pools {
		if name == client.DefaultPool && name != defaultPool {
			return s, fmt.Errorf("--pool is %q and --ipam-default-ip-pool is %q; expected another name for the pool: %q always means the default pool", name+"="+network, defaultPool, name)
		}
		if name == defaultPool && s.CNINetwork != "" && network != s.CNINetwork {
			return s, fmt.Errorf("--pool is %q and --cni-network is %q; expected one of them: both name the network of the same pool", name+"="+network, s.CNINetwork)
		}
		all[name] = network
	}
	if strings.HasPrefix(s.SocketPath, "@") {
		return s, fmt.Errorf("--socket-path is %q; expected the path of a file: an abstract socket has neither mode nor group, so each process of the network namespace could connect to it or take its name", s.SocketPath)
	}
	s.CNIBinDirs, s.PluginProfiles = slices.Clone(s.CNIBinDirs), slices.Clone(s.PluginProfiles)
	paths := []*string{&s.SocketPath, &s.StateDir, &s.CNIConfDir, &s.CNIConfFile, &s.ConfigDir}
	for _, list := range [][]string{s.CNIBinDirs, s.PluginProfiles} {
		for i := range list {
			paths = append(paths, &list[i])
		}
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return s, fmt.Errorf("path %q: %w", *path, err)
		}
		*path = abs
	}
	s.Pools = all
	return s, nil
}

// Validate reports each option of a completed Daemon that cannot work: its name, its value and
// what is expected.
func (s Daemon) Validate() error {
	return errors.Join(validate(s.declare(nil)), s.validatePools())
}

const expectedPoolName = "lower case letters, digits and dashes, at most 63"

// poolName is a DNS label, as Cilium's pool names are.
var poolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (s Daemon) validatePools() error {
	var errs []error
	networks := map[string]string{}
	for _, pool := range slices.Sorted(maps.Keys(s.Pools)) {
		network := s.Pools[pool]
		if !poolName.MatchString(pool) {
			errs = append(errs, fmt.Errorf("--pool: pool name %q; expected %s", pool, expectedPoolName))
		}
		network, _, _ = strings.Cut(network, "/") // NETWORK/TYPE names a plugin of its chain
		if other, ok := networks[network]; ok && network != "" {
			errs = append(errs, fmt.Errorf("--pool: pools %q and %q both name network %q; expected a separate network for each", other, pool, network))
		}
		networks[network] = pool
	}
	if len(s.Pools) == 0 {
		errs = append(errs, errors.New("--pool: no pool; expected at least one"))
	}
	return errors.Join(errs...)
}
