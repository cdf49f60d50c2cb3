// Package cmdline has what the command lines of both programs share: signals, exit codes, usage
// errors, arguments and the version.
package cmdline

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
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
