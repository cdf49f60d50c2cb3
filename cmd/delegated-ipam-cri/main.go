// Command delegated-ipam-cri reports the pod sandboxes of the container runtime to the daemon, so that it
// can release the addresses of containers that ended without a DEL.
package main

import (
	"github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-cri/cli"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

// version is set by the build of a release: -ldflags "-X main.version=v0.1.0".
var version string

func main() { cmdline.Main(cli.Run, version) }
