// Command delegated-ipam serves Cilium's IPAM API on a unix socket and gets
// every address from the delegated CNI IPAM plugin of the node.
package main

import (
	"github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam/cli"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

// version is set by the build of a release: -ldflags "-X main.version=v0.1.0".
var version string

func main() { cmdline.Main(cli.Run, version) }
