// Package app puts the parts of the sidecar together: start, stop, reload.
package app

import (
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// Config is what `serve` is told. The comment of each field names its option.
type Config struct {
	// Version is the program's version.
	Version string
	// Options are what the process was told, for its status; they decide nothing.
	Options []Option

	SocketPath  string      // --socket-path
	SocketMode  fs.FileMode // --socket-mode
	SocketGroup string      // --socket-group
	AllowUIDs   []int       // --allow-uids
	AllowGIDs   []int       // --allow-gids

	StateDir    string   // --state-dir
	CNIConfDir  string   // --cni-conf-dir
	CNIConfFile string   // --cni-conf-file
	CNIBinDirs  []string // --cni-bin-dir
	InPod       bool     // $KUBERNETES_SERVICE_HOST is set, as the kubelet does for every container
	// Pools maps pools to network names (--pool name=network); the network of
	// pool "default" is --cni-network, empty for the first that delegates IPAM.
	Pools map[string]string

	NodeName        string       // --node-name
	EnableIPv4      bool         // --enable-ipv4
	EnableIPv6      bool         // --enable-ipv6
	LocalRouterIPv4 netip.Addr   // --local-router-ipv4
	LocalRouterIPv6 netip.Addr   // --local-router-ipv6
	IPv4Range       netip.Prefix // --ipv4-range
	IPv6Range       netip.Prefix // --ipv6-range

	Owners       []string // --owners
	RetireOwners bool     // --retire-owners

	PluginProfiles     []string      // --plugin-profile: files
	AcceptUnsafePlugin bool          // --accept-unsafe-plugin
	PluginTimeout      time.Duration // --plugin-timeout
	PluginEnv          []string      // --plugin-env
	MaxPluginProcesses int           // --max-plugin-processes
	MaxQueuedRequests  int           // --max-queued-requests
	VerifyInterval     time.Duration // --verify-interval
	CNINetNS           string        // --cni-netns
	CNIIfName          string        // --cni-ifname

	ReleaseDelay   time.Duration // --release-delay
	IPAMExpiration time.Duration // --ipam-expiration

	MetricsAddress string // --metrics-address: host:port, :port for loopback only, empty for none
}

// Option is one option with its value and where that came from.
type Option = restapi.OptionValue

// locksName is the file of the locks that plugin processes inherit.
const locksName = "plugins.lock"

// plugin is how plugins are run.
func (c Config) plugin() delegate.Options {
	return delegate.Options{
		BinDirs: c.CNIBinDirs, IfName: c.CNIIfName, NetNS: c.CNINetNS, Timeout: c.PluginTimeout,
		Env: c.PluginEnv, LockFile: filepath.Join(c.StateDir, locksName), AcceptUnsafe: c.AcceptUnsafePlugin, InPod: c.InPod,
		Profiles: newProfiles(c.PluginProfiles).load,
	}
}

// socket is where the API is served.
func (c Config) socket() unixsock.Options {
	return unixsock.Options{Path: c.SocketPath, Mode: c.SocketMode, Group: c.SocketGroup}
}

// poolNames are the pools in the order in which they are shown: default first.
func (c Config) poolNames() []string { return slices.SortedFunc(maps.Keys(c.Pools), cniconf.ByRank) }
