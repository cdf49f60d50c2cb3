// Command delegated-ipam-bridge keeps the CiliumNode of a node filled with
// addresses of the sidecar, for an unmodified cilium-agent in ipam mode crd.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/command"
)

// version is set when a release is built: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks for a graceful end. After it signals do again what
	// they do by default, so that a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(command.Run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr, version))
}
