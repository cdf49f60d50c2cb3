package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
)

// serveOptions are the options of serve as they are here, from the same sources: flags of the
// command, the environment and --config-dir.
type serveOptions struct {
	env    map[string]string
	values *options.Sidecar
	set    *options.Set
}

// serveOptions adds flags of serve to a command; without names all of them.
func (d dependencies) serveOptions(cmd *cobra.Command, names ...string) serveOptions {
	o := serveOptions{env: d.env}
	o.values, o.set = options.NewSidecar(d.env)
	for _, name := range names {
		cmd.Flags().AddFlag(o.set.Flags().Lookup(name))
	}
	if len(names) == 0 {
		cmd.Flags().AddFlagSet(o.set.Flags())
	}
	return o
}

// resolve reads the sources. An error is a *cmdline.UsageError.
func (o serveOptions) resolve() (sidecar.Config, error) {
	if err := o.set.Resolve(o.env); err != nil {
		return sidecar.Config{}, cmdline.Usage(err)
	}
	resolved, err := o.values.Complete()
	return sidecar.Config{Sidecar: resolved}, cmdline.Usage(err)
}

// withPlugins calls run with the valid options, their networks, and options of a plugin runner
// whose lock file exists during the call.
func (o serveOptions) withPlugins(run func(sidecar.Config, *cniconf.Watcher, plugin.Options) error) error {
	config, err := o.resolve()
	if err != nil {
		return err
	}
	if err := config.Sidecar.Validate(); err != nil {
		return cmdline.Usage(err)
	}
	networks, err := cniconf.New(config.NetworkOptions())
	if err != nil {
		return cmdline.Usage(err)
	}
	dir, err := makeLockDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	plugins := config.PluginOptions()
	plugins.LockFile = filepath.Join(dir, "lock")
	return run(config, networks, plugins)
}

// makeLockDir creates the directory of the lock file. Where the container's file system is
// read-only, it is in memory.
func makeLockDir() (string, error) {
	const pattern = "delegated-ipam-"
	dir, err := os.MkdirTemp("", pattern)
	if err == nil {
		return dir, nil
	}
	dir, shmErr := os.MkdirTemp("/dev/shm", pattern)
	if shmErr != nil {
		return "", fmt.Errorf("directory of the lock file: %w; TMPDIR names another", errors.Join(err, shmErr))
	}
	return dir, nil
}
