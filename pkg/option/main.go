package option

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a program's command line in this process and ends it with what run
// returns. ctx ends with the first SIGINT or SIGTERM: that asks for a graceful end.
// After it signals do again what they do by default, so that a second one ends the
// process at once.
func Main(run func(ctx context.Context, args, environ []string, stdout, stderr io.Writer, version string) int, version string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, version))
}
