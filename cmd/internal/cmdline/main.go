// Package cmdline has what the command lines of both programs share: signals, exit codes, usage
// errors, arguments and the version.
package cmdline

import (
	"context"
	"io"
	"os"
	"os/signal"
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
