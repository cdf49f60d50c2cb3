// Package daemon assembles the daemon from its parts: start and stop.
package daemon

import (
	"errors"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Config is the input of Run: the completed options of `serve`, and their report in the status.
type Config struct {
	options.Daemon
	// Version is the version of the program.
	Version string
	// Settings returns the options with their sources, for the status only; nil for none.
	Settings func() []options.Setting
}

// Validate reports each invalid option: its name, its value and the expected values. Beyond
// options.Daemon.Validate it has the checks that the plugin runner and the socket define. Files
// that may still change, the plugin profiles and the CNI configuration, are not checked.
func (c Config) Validate() error {
	_, err := plugin.New(c.PluginOptions())
	return errors.Join(c.Daemon.Validate(), err, c.SocketOptions().Validate())
}

// PluginOptions returns the options of the plugin runner.
func (c Config) PluginOptions() plugin.Options {
	return plugin.Options{
		BinDirs: c.CNIBinDirs, IfName: c.CNIIfName, NetNS: c.CNINetNS, Timeout: c.PluginTimeout,
		Env: c.PluginEnv, LockFile: filepath.Join(c.StateDir, statedir.PluginLocks), AcceptUnsafe: c.AcceptUnsafePlugin, SingleNode: c.SingleNode, InPod: c.InPod,
		HostLocal: c.HostLocal, Exclude: c.ExcludeAddresses,
		EnableIPv4: c.EnableIPv4, EnableIPv6: c.EnableIPv6,
		Profiles: profile.Loader(c.PluginProfiles),
	}
}

// NetworkOptions returns the options of the CNI network configurations.
func (c Config) NetworkOptions() cniconf.Options {
	return cniconf.Options{Dir: c.CNIConfDir, File: c.CNIConfFile, Pools: c.Pools, DefaultPool: c.IPAMDefaultIPPool}
}

// SocketOptions returns the options of the socket.
func (c Config) SocketOptions() unixsock.Options {
	return unixsock.Options{Path: c.SocketPath, Mode: c.SocketMode, Group: c.SocketGroup}
}

// callers returns the authorized callers of the API.
func (c Config) callers() unixsock.Callers {
	return unixsock.Callers{UIDs: c.AllowUIDs, GIDs: c.AllowGIDs}
}

// poolNames returns the pools in the order in which they are shown: the default one first.
func (c Config) poolNames() []string { return cniconf.ByRank(c.Pools, c.IPAMDefaultIPPool) }
