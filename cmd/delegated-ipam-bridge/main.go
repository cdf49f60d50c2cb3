// Command delegated-ipam-bridge keeps the CiliumNode of a node filled with
// addresses of the sidecar, for an unmodified cilium-agent in ipam mode crd.
package main

import (
	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/command"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// version is set when a release is built: -ldflags "-X main.version=v1.2.3".
var version string

func main() { option.Main(command.Run, version) }
