// Package cmdline has what the command lines of the programs share: signals, exit codes, usage
// errors, arguments and the version.
package cmdline

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"syscall"

	"github.com/spf13/cobra"
)

// Run runs one command line and returns the exit code. args are the arguments without the name of
// the program and environ the environment as os.Environ returns it. version is the version of the
// build, empty for that in the build information. The command ends when ctx does.
type Run func(ctx context.Context, args, environ []string, stdout, stderr io.Writer, version string) int

// Main runs the command line of this process and exits with its exit code. The first SIGINT or
// SIGTERM cancels ctx, for a graceful end. After it signals have their default effect again, so
// that a second one terminates the process immediately.
func Main(run Run, version string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, version))
}

// Hangups returns a channel that receives SIGHUP, which does not terminate the process any more
// until stop is called. Signals that arrive before the last one was received count as one.
func Hangups() (hangups <-chan os.Signal, stop func()) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGHUP)
	return received, func() { signal.Stop(received) }
}

// DumpGoroutines writes the stacks of all goroutines to w at each SIGUSR1, which does not terminate
// the process any more, until stop is called. stop waits for a dump in progress.
func DumpGoroutines(w io.Writer) (stop func()) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGUSR1)
	stopDumps := OnEach(received, func() {
		// As a panic prints them. An error of stderr cannot be reported anywhere.
		_ = pprof.Lookup("goroutine").WriteTo(w, 2)
	})
	return func() {
		signal.Stop(received)
		stopDumps()
	}
}

// OnEach calls do for each signal until stop is called, which waits for a call in progress.
func OnEach(signals <-chan os.Signal, do func()) (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stopped:
				return
			case <-signals:
				do()
			}
		}
	}()
	return func() {
		close(stopped)
		<-done
	}
}

// AddVersion gives a program the flag --version and the command version, which it returns. Both
// print the same: the text of cobra. Another one would need cobra's templates, and with the package
// text/template the linker keeps 4 MB more of each program.
func AddVersion(root *cobra.Command, version string) *cobra.Command {
	program := root.Name()
	root.Version = fmt.Sprintf("%s (%s %s/%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Long:    "Print the version of this program, of Go, and the platform, as --version does.",
		Example: "  " + program + " version",
		Args:    Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s version %s\n", program, root.Version)
			return err
		},
	}
	root.AddCommand(cmd)
	return cmd
}

// Version returns the version of the build if there is one, else the one that Go wrote into the
// binary: the version of the module or the commit.
func Version(build string) string {
	if build != "" {
		return build
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return buildVersion(info)
}

// buildVersion returns the version of a module that was installed as one, else the commit, else
// "unknown".
func buildVersion(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
