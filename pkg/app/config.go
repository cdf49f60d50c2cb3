// Package app assembles the sidecar from its parts: start, stop, reload.
package app

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/profilefile"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// Config is the input of Run: the completed options of `serve`, and their report in the status.
type Config struct {
	options.Sidecar
	// Version is the version of the program.
	Version string
	// Settings are the options with their sources, for the status only.
	Settings []options.Setting
	// Hangups requests a reload by each signal; nil for none.
	Hangups <-chan os.Signal
	// Reread reads the options again at a reload, applies those that it can, and returns the
	// Settings from then on; nil if they stay.
	Reread func() []options.Setting
}

// Validate reports each invalid option: its name, its value and the expected values. Beyond
// options.Sidecar.Validate it has the checks that the plugin runner and the socket define. Files
// that may still change, those of --plugin-profile and the CNI configuration, are not part of it.
func (c Config) Validate() error {
	_, err := delegate.New(c.PluginOptions())
	return errors.Join(c.Sidecar.Validate(), err, c.SocketOptions().Validate())
}

// locksName is the file of the locks that plugin processes inherit.
const locksName = "plugins.lock"

// PluginOptions returns the options of the plugin runner.
func (c Config) PluginOptions() delegate.Options {
	return delegate.Options{
		BinDirs: c.CNIBinDirs, IfName: c.CNIIfName, NetNS: c.CNINetNS, Timeout: c.PluginTimeout,
		Env: c.PluginEnv, LockFile: filepath.Join(c.StateDir, locksName), AcceptUnsafe: c.AcceptUnsafePlugin, SingleNode: c.SingleNode, InPod: c.InPod,
		Profiles: profilefile.Loader(c.PluginProfiles),
	}
}

// SocketOptions returns the options of the socket.
func (c Config) SocketOptions() unixsock.Options {
	return unixsock.Options{Path: c.SocketPath, Mode: c.SocketMode, Group: c.SocketGroup}
}

// reported returns settings as the status has them.
func reported(settings []options.Setting) []restapi.OptionValue {
	all := make([]restapi.OptionValue, len(settings))
	for i, s := range settings {
		all[i] = restapi.OptionValue{Name: s.Name, Value: s.Value, Source: string(s.Source)}
	}
	return all
}

// poolNames returns the pools in the order in which they are shown: the default one first.
func (c Config) poolNames() []string { return cniconf.ByRank(c.Pools, c.IPAMDefaultIPPool) }
