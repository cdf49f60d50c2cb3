// Command delegated-ipam-bridge keeps the CiliumNode of a node filled with
// addresses of the daemon, for an unmodified cilium-agent in ipam mode crd.
package main

import (
	"github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-bridge/cli"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

// version is set by the build of a release: -ldflags "-X main.version=v0.1.0".
var version string

func main() { cmdline.Main(cli.Run, version) }
