package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
)

func (d dependencies) serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve Cilium's IPAM API on a unix socket",
		Long: `Serve Cilium's IPAM API on a unix socket, with addresses from the delegated CNI IPAM
plugin of this node.

Each option has three sources; the first that sets it applies:

  1. the flag                      --owners=router,health
  2. the environment               DELEGATED_IPAM_OWNERS=router,health
  3. a file in --config-dir        a file "owners" that contains router,health

The directory is meant for a mounted ConfigMap. Lists are separated by commas; as a flag
they can also be repeated. An empty environment variable counts as not set.

SIGTERM or SIGINT ends gracefully: requests in progress are completed, and nothing is
released. A second signal ends the process immediately; the next start completes what the
journal records.

SIGHUP reads log-level in --config-dir again; other options need a restart. SIGUSR1 writes
the stacks of all goroutines to stderr.`,
		Example: `  # The addresses that cilium-agent in delegated-plugin mode would have on this node
  delegated-ipam serve --local-router-ipv4=10.15.0.1 --local-router-ipv6=fd00:15::1

  # A second pool on a separate network, and a list of owners
  delegated-ipam serve --pool=blue=blue-network --owners=router,health,ingress

  # Options from a mounted ConfigMap
  delegated-ipam serve --config-dir=/etc/delegated-ipam`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.runServe(cmd, o) },
	}
	o = d.serveOptions(cmd)
	return cmd
}

func (d dependencies) runServe(cmd *cobra.Command, o serveOptions) error {
	hangups, stopHangups := cmdline.Hangups()
	defer stopHangups()
	defer cmdline.DumpGoroutines(cmd.ErrOrStderr())()
	config, err := o.resolve()
	if err != nil {
		return err
	}
	if err := config.Validate(); err != nil {
		return cmdline.Usage(err)
	}
	log, err := logging.New(cmd.ErrOrStderr(), config.LogLevel, config.LogFormat == options.LogJSON)
	if err != nil {
		return cmdline.Usage(err)
	}
	cmdline.LimitMemory(log)
	for _, name := range o.set.UnknownVariables(d.env) {
		log.WithField("variable", name).Warn("Ignored an environment variable that is not an option of delegated-ipam")
	}
	for _, path := range o.set.SkippedFiles() {
		log.WithField("file", path).Warn("Ignored a directory or backup file in --config-dir")
	}
	settings := &atomic.Pointer[[]options.Setting]{}
	all := o.set.Settings()
	settings.Store(&all)
	config.Version, config.Settings = d.version, func() []options.Setting { return *settings.Load() }
	fields := logrus.Fields{}
	for _, s := range all {
		fields[s.Name] = fmt.Sprintf("%s (%s)", s.Value, s.Source)
	}
	log.WithFields(fields).Debug("Options")
	defer cmdline.OnEach(hangups, func() {
		next := o.reread(log, *settings.Load())
		settings.Store(&next)
	})()
	cmd.Root().ResetCommands() // the options of the others would stay in memory
	if err := d.serve(cmd.Context(), config, log); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// reread reads the options again, applies the level of the log, and returns the running options with it. After an error
// they stay.
func (o serveOptions) reread(log *logrus.Logger, running []options.Setting) []options.Setting {
	_, now := options.NewDaemon(o.env)
	if err := o.set.Reread(now, o.env); err != nil {
		log.WithError(err).Error("SIGHUP: the options are invalid; the daemon keeps its options")
		return running
	}
	running = slices.Clone(running)
	level := &running[slices.IndexFunc(running, func(s options.Setting) bool { return s.Name == "log-level" })]
	configured := now.Setting(level.Name)
	least, _ := logrus.ParseLevel(configured.Value) // the option accepts only levels
	log.SetLevel(least)
	log.WithFields(logrus.Fields{"option": level.Name, "running": level.Value, "configured": configured.Value}).
		Info("SIGHUP: the option is applied; others need a restart of the daemon")
	*level = configured
	return running
}

// serveOptions are the options of serve as they are here, from the same sources: flags of the
// command, the environment and --config-dir.
type serveOptions struct {
	env    map[string]string
	values *options.Daemon
	set    *options.Set
}

// serveOptions adds flags of serve to a command; without names all of them.
func (d dependencies) serveOptions(cmd *cobra.Command, names ...string) serveOptions {
	o := serveOptions{env: d.env}
	o.values, o.set = options.NewDaemon(d.env)
	for _, name := range names {
		cmd.Flags().AddFlag(o.set.Flags().Lookup(name))
	}
	if len(names) == 0 {
		cmd.Flags().AddFlagSet(o.set.Flags())
	}
	return o
}

// resolve reads the sources. An error is one of cmdline.Usage.
func (o serveOptions) resolve() (daemon.Config, error) {
	if err := o.set.Resolve(o.env); err != nil {
		return daemon.Config{}, cmdline.Usage(err)
	}
	resolved, err := o.values.Complete()
	return daemon.Config{Daemon: resolved}, cmdline.Usage(err)
}

// offline makes a command run without a daemon, and adds its flags: those of serve with these names,
// --config-dir, and more.
func (d dependencies) offline(
	cmd *cobra.Command, names []string, run func(*cobra.Command, serveOptions, []string) error, more ...options.Option,
) *cobra.Command {
	serve := d.serveOptions(cmd, append([]string{"config-dir"}, names...)...)
	options.Register(cmd.Flags(), more...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd, serve, args) }
	return cmd
}

// onStateDir is offline for a command that works on the state directory that serve would have.
func (d dependencies) onStateDir(
	cmd *cobra.Command, run func(cmd *cobra.Command, stateDir string, args []string) error, more ...options.Option,
) *cobra.Command {
	return d.offline(cmd, []string{"state-dir"}, func(cmd *cobra.Command, serve serveOptions, args []string) error {
		config, err := serve.resolve()
		if err != nil {
			return err
		}
		return run(cmd, config.StateDir, args)
	}, more...)
}

// pluginFlags are the flags of serve by which withPlugins finds networks and runs plugins.
var pluginFlags = []string{
	"cni-conf-dir", "cni-conf-file", "cni-network", "pool", "cni-bin-dir", "cni-ifname", "cni-netns",
	"plugin-timeout", "plugin-env", "plugin-profile",
}

// withPlugins calls run with the valid options, their networks, and options of a plugin runner
// whose lock file exists during the call.
func (o serveOptions) withPlugins(run func(daemon.Config, *cniconf.Watcher, plugin.Options) error) error {
	config, err := o.resolve()
	if err != nil {
		return err
	}
	if err := config.Daemon.Validate(); err != nil {
		return cmdline.Usage(err)
	}
	networks, err := cniconf.New(config.NetworkOptions())
	if err != nil {
		return cmdline.Usage(err)
	}
	const pattern = "delegated-ipam-"
	dir, err := os.MkdirTemp("", pattern)
	if err != nil { // a read-only file system; then the directory is in memory
		var shmErr error
		if dir, shmErr = os.MkdirTemp("/dev/shm", pattern); shmErr != nil {
			return fmt.Errorf("directory of the lock file: %w; TMPDIR names another", errors.Join(err, shmErr))
		}
	}
	defer os.RemoveAll(dir)
	plugins := config.PluginOptions()
	plugins.LockFile = filepath.Join(dir, "lock")
	return run(config, networks, plugins)
}
