package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// findPlugin returns the absolute path of a plugin's executable in the plugin directories.
func (r *Runner) findPlugin(pluginType string) (string, error) {
	if err := profile.CheckType(pluginType); err != nil {
		return "", fmt.Errorf("ipam.type %q: %w", pluginType, err)
	}
	binary, err := invoke.FindInPath(pluginType, r.opts.BinDirs)
	if err != nil {
		return "", fmt.Errorf("%w; put the plugin there or name its directory with --cni-bin-dir", err)
	}
	return binary, nil
}

// Executable returns the path of the executable that calls with a recorded invocation use: the
// recorded one, or, where that no longer exists or is in none of the plugin directories, the one of
// the plugin's type there. A record must not be able to name any program for execution: a user
// who can change one may be less privileged than the daemon. The error names the remedy if there is neither.
func (r *Runner) Executable(plugin, recorded string) (string, error) {
	if recorded == "" { // allocated in this process
		return r.findPlugin(plugin)
	}
	why := "no longer exists"
	dir, name := filepath.Split(recorded)
	if name != plugin || !slices.Contains(r.opts.BinDirs, filepath.Clean(dir)) {
		why = "is not executed, because it is not this plugin in a directory of --cni-bin-dir"
	} else if _, err := os.Stat(recorded); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return recorded, nil
	}
	binary, err := r.findPlugin(plugin)
	if err != nil {
		return "", fmt.Errorf("%s, with which an address was allocated, %s: %w", recorded, why, err)
	}
	return binary, nil
}

// withExecutable returns a recorded invocation with the executable to use now. For another one than
// recorded, or with directories that are none of the plugin directories, CNI_PATH is theirs, too.
func (r *Runner) withExecutable(inv call.Invocation) (call.Invocation, error) {
	if r.Embedded(inv.Plugin) != "" {
		// A program that is missing now may have its leases elsewhere.
		if inv.Binary != "" && !inv.StoreProven && r.opts.HostLocal != HostLocalEmbedded && r.installed(inv.Plugin) == "" {
			_, err := r.Executable(inv.Plugin, inv.Binary)
			return inv, err
		}
		inv.Binary = ""
		return inv, nil
	}
	binary, err := r.Executable(inv.Plugin, inv.Binary)
	if err != nil {
		return inv, err
	}
	foreign := func(dir string) bool { return !slices.Contains(r.opts.BinDirs, dir) }
	if binary != inv.Binary || inv.Path != r.cniPath && slices.ContainsFunc(filepath.SplitList(inv.Path), foreign) {
		inv.Binary, inv.Path = binary, r.cniPath
	}
	return inv, nil
}
