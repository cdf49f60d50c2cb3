package cli

import (
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// serveOptions are the options of `serve`.
type serveOptions struct {
	app.Config
	CNINetwork string       // --cni-network
	LogLevel   logrus.Level // --log-level
	LogFormat  string       // --log-format
	ConfigDir  string       // --config-dir
}

// defaultServeOptions are the options of which nothing is said. nodeName is what
// the node is called if --node-name does not say.
func defaultServeOptions(nodeName string) *serveOptions {
	return &serveOptions{
		Config: app.Config{
			SocketPath: client.DefaultSocket,
			SocketMode: unixsock.DefaultMode,
			StateDir:   "/var/lib/delegated-ipam",
			CNIConfDir: "/etc/cni/net.d",
			CNIBinDirs: []string{"/opt/cni/bin"},
			NodeName:   nodeName,
			// Cilium's defaults (pkg/defaults of Cilium, EnableIPv4 and EnableIPv6).
			EnableIPv4:    true,
			EnableIPv6:    true,
			Owners:        []string{"*"},
			PluginTimeout: delegate.DefaultTimeout,
			// A plugin call is mostly start-up and disk: two for each CPU keep both
			// busy. Fewer than four would let one slow plugin stop all others.
			MaxPluginProcesses: max(4, 2*runtime.GOMAXPROCS(0)),
			MaxQueuedRequests:  1024,
			// The agent asks for one owner's two families, and asks again after a
			// failure, within seconds: one question is enough for all of these. What
			// the plugin lost behind our back is still noticed soon.
			VerifyInterval: 10 * time.Second,
			CNIIfName:      delegate.DefaultIfName,
			// Cilium's default, too (pkg/defaults of Cilium, IPAMExpiration).
			IPAMExpiration: 10 * time.Minute,
		},
		LogLevel:  logrus.InfoLevel,
		LogFormat: option.LogText,
	}
}

// newServeOptions are options of which nothing is said yet, and the flags that say it.
func newServeOptions(nodeName string) (*serveOptions, *pflag.FlagSet) {
	o, flags := defaultServeOptions(nodeName), pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.register(flags)
	return o, flags
}

// register adds every option that can be given as flag, in the environment and
// in the configuration folder.
func (o *serveOptions) register(flags *pflag.FlagSet) {
	o.registerSocket(flags)
	o.registerNetworks(flags)
	o.registerAddresses(flags)
	o.registerPlugin(flags)
	flags.Var(option.Duration(&o.ReleaseDelay), "release-delay", "how long a released address is kept before the plugin gets it back; 0s for at once")
	flags.Var(option.Duration(&o.IPAMExpiration), "ipam-expiration", "by when an address that was asked for with an expiration must be confirmed")
	flags.Var(option.Text(&o.MetricsAddress, "host:port"), "metrics-address", "TCP address on which /metrics, and nothing else, is served; :port is on loopback only, and nothing is served if not set")
	flags.Var(option.Level(&o.LogLevel), "log-level", "what is logged: this and everything more important")
	flags.Var(option.Choice(&o.LogFormat, option.LogText, option.LogJSON), "log-format", "how it is logged, to stderr")
}

func (o *serveOptions) registerSocket(flags *pflag.FlagSet) {
	flags.Var(option.Text(&o.SocketPath, "path"), "socket-path", "unix socket to serve on, at most 107 bytes long")
	flags.Var(option.Mode(&o.SocketMode), "socket-mode", "permission bits of the socket, octal")
	flags.Var(option.Text(&o.SocketGroup, "group"), "socket-group", "group of the socket, by name or number; that of the process if not set")
	flags.Var(idsValue(&o.AllowUIDs, "uids", "user IDs, numbers separated by commas"), "allow-uids",
		"user IDs that may call besides root and the sidecar's own user; a list")
	flags.Var(idsValue(&o.AllowGIDs, "gids", "group IDs, numbers separated by commas"), "allow-gids",
		"group IDs whose members may call; a list")
}

func (o *serveOptions) registerNetworks(flags *pflag.FlagSet) {
	flags.Var(option.Text(&o.StateDir, "path"), "state-dir", "folder of the journal; it must outlive the process")
	flags.Var(option.Text(&o.CNIConfDir, "path"), "cni-conf-dir", "folder in which the CNI configuration is looked for, as a container runtime does")
	flags.Var(option.Text(&o.CNIConfFile, "path"), "cni-conf-file", "the one CNI configuration file to read; --cni-conf-dir is then not looked at")
	flags.Var(textsValue(&o.CNIBinDirs, "paths"), "cni-bin-dir", "folders of CNI plugins, best first; a list")
	flags.Var(option.Text(&o.CNINetwork, "name"), "cni-network", `CNI network of the pool "default"; the first that delegates IPAM if not set`)
	flags.Var(poolsValue{&o.Pools}, "pool", `a further pool and its CNI network; a list. The pool "default" is always there`)
	flags.Var(textsValue(&o.Owners, "patterns"), "owners", `who may own addresses, "*" standing for any text; a list`)
	option.AddSwitch(flags, &o.RetireOwners, "retire-owners", "release at start what owners hold that --owners does not admit any more")
}

func (o *serveOptions) registerAddresses(flags *pflag.FlagSet) {
	flags.Var(option.Text(&o.NodeName, "name"), "node-name", "name of this node, from which container IDs are made; by default $K8S_NODE_NAME as in cilium-agent, else the host name")
	option.AddSwitch(flags, &o.EnableIPv4, "enable-ipv4", "hand out IPv4 addresses (cilium-agent's option)")
	option.AddSwitch(flags, &o.EnableIPv6, "enable-ipv6", "hand out IPv6 addresses (cilium-agent's option)")
	flags.Var(option.Address(&o.LocalRouterIPv4, "an IPv4 address"), "local-router-ipv4", "address of cilium_host, told to clients (cilium-agent's option)")
	flags.Var(option.Address(&o.LocalRouterIPv6, "an IPv6 address"), "local-router-ipv6", "address of cilium_host, told to clients (cilium-agent's option)")
	flags.Var(option.Prefix(&o.IPv4Range, "an IPv4 prefix such as 10.0.0.0/24"), "ipv4-range", "range of the node's addresses, told to clients (cilium-agent's option)")
	flags.Var(option.Prefix(&o.IPv6Range, "an IPv6 prefix such as fd00::/64"), "ipv6-range", "range of the node's addresses, told to clients (cilium-agent's option)")
}

func (o *serveOptions) registerPlugin(flags *pflag.FlagSet) {
	flags.Var(textsValue(&o.PluginProfiles, "files"), "plugin-profile", "files that describe further plugin types; a list")
	option.AddSwitch(flags, &o.AcceptUnsafePlugin, "accept-unsafe-plugin", "use a plugin whose profile says that it loses or doubles addresses; docs/plugins.md says which and why")
	flags.Var(option.Duration(&o.PluginTimeout), "plugin-timeout", "time limit of one plugin call; two calls and their ends should fit into the 80s that a request may take")
	flags.Var(textsValue(&o.PluginEnv, "names"), "plugin-env", "environment variables that plugins get too; a list")
	flags.Var(option.Count(&o.MaxPluginProcesses), "max-plugin-processes", "plugin calls at a time; by default two for each CPU, at least four")
	flags.Var(option.Count(&o.MaxQueuedRequests), "max-queued-requests", "requests that may wait; further ones are refused with Retry-After")
	flags.Var(option.Duration(&o.VerifyInterval), "verify-interval", "how long after the plugin has confirmed an address it is not asked about it again; 0s to ask each time")
	flags.Var(option.Text(&o.CNINetNS, "path"), "cni-netns", `CNI_NETNS of plugin calls: a path, or "`+delegate.EphemeralNetNS+`" for a new namespace for each call; by default what the plugin's profile says, for most a path that does not exist`)
	flags.Var(option.Text(&o.CNIIfName, "name"), "cni-ifname", "CNI_IFNAME of plugin calls")
}

// config is what the daemon is told. Errors name the option, what it got and
// what it takes.
func (o *serveOptions) config(version string) (app.Config, error) {
	c, err := o.complete()
	if err != nil {
		return c, err
	}
	c.Version = version
	return c, c.Validate()
}

// complete is the configuration with all its pools and with absolute paths.
func (o *serveOptions) complete() (app.Config, error) {
	c := o.Config
	pools, err := o.pools()
	if err != nil {
		return c, err
	}
	c.Pools = pools
	return c, absolute(&c)
}

// pools are the pools with the one that is always there.
func (o *serveOptions) pools() (map[string]string, error) {
	out := map[string]string{attachment.DefaultPool: o.CNINetwork}
	for name, network := range o.Pools {
		if name == attachment.DefaultPool && o.CNINetwork != "" && network != o.CNINetwork {
			return nil, fmt.Errorf("--pool is %q and --cni-network is %q; expected one of them: both name the network of the same pool",
				name+"="+network, o.CNINetwork)
		}
		out[name] = network
	}
	return out, nil
}

// absolute makes paths independent of the working folder; an empty one stays empty.
func absolute(c *app.Config) error {
	paths := []*string{&c.SocketPath, &c.StateDir, &c.CNIConfDir, &c.CNIConfFile}
	for _, list := range []*[]string{&c.CNIBinDirs, &c.PluginProfiles} {
		*list = append([]string(nil), *list...)
		for i := range *list {
			paths = append(paths, &(*list)[i])
		}
	}
	for _, p := range paths {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("path %q: %w", *p, err)
		}
		*p = abs
	}
	return nil
}
