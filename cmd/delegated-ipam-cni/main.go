// Command delegated-ipam-cni is a CNI IPAM plugin that gets the addresses of pods from the daemon
// of the node, over any CNI IPAM plugin.
package main

import (
	"os"

	"github.com/delegated-ipam/delegated-ipam/internal/cniplugin"
)

// version is set by the build of a release: -ldflags "-X main.version=v0.1.0".
var version string

func main() { os.Exit(cniplugin.Main(version)) }
