// Command delegated-ipam speaks Cilium's IPAM API on a unix socket and gets
// every address from the delegated CNI IPAM plugin of the node.
package main

import (
	"github.com/delegated-ipam/delegated-ipam/pkg/cli"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// version is set when a release is built: -ldflags "-X main.version=v1.2.3".
var version string

func main() { option.Main(cli.Run, version) }
