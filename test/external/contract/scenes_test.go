package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// scene starts a sidecar on a node of its own, in which a case plays.
type scene func(t *testing.T) (*harness.Node, *harness.Sidecar)

// Answers of plugins whose every word the test decides. VERSION comes first in
// each, because it is asked before anything else.
const (
	version = `#!/bin/sh
cat >/dev/null
if [ "$CNI_COMMAND" = VERSION ]; then
  echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'
  exit 0
fi
`
	refuses = version + `if [ "$CNI_COMMAND" = ADD ]; then
  echo '{"cniVersion":"1.0.0","code":11,"msg":"no address left","details":"the range is exhausted"}'
  exit 1
fi
`
	namesUplink = version + `if [ "$CNI_COMMAND" = ADD ]; then
  echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth1","mac":"02:00:00:00:00:01"}],"ips":[{"address":"10.15.0.7/24"}]}'
fi
`
	cannotFree = version + `echo '{"cniVersion":"1.0.0","code":11,"msg":"the store is locked"}'
exit 1
`
)

func empty(t *testing.T) (*harness.Node, *harness.Sidecar) { return served(t, harness.DualStack()) }

func ipv4Only(t *testing.T) (*harness.Node, *harness.Sidecar) {
	return served(t, harness.IPv4Only(), "--enable-ipv6=false")
}

func onlyRouter(t *testing.T) (*harness.Node, *harness.Sidecar) {
	return served(t, harness.DualStack(), "--owners=router")
}

// fromStranger speaks to the sidecar as a user that may not call.
func fromStranger(t *testing.T) (*harness.Node, *harness.Sidecar) {
	t.Helper()
	n, s := served(t, harness.DualStack(), "--socket-mode=0666")
	theirs := *s
	theirs.Client = asStranger(t, n)
	return n, &theirs
}

func routerHolds(t *testing.T) (*harness.Node, *harness.Sidecar) {
	t.Helper()
	n, s := empty(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	return n, s
}

func routerExpires(t *testing.T) (*harness.Node, *harness.Sidecar) {
	t.Helper()
	n, s := empty(t)
	s.Allocate(t, harness.Request{Owner: "router", Expire: true})
	return n, s
}

func noConfiguration(t *testing.T) (*harness.Node, *harness.Sidecar) {
	t.Helper()
	n := harness.NewNode(t)
	s := n.Launch(t)
	s.WaitServing(t)
	harness.Eventually(t, "it to say that it lacks the configuration, and nothing else", func() error {
		err := s.Ready()
		if err == nil || !strings.Contains(err.Error(), "no CNI configuration") || strings.Contains(err.Error(), "does not answer") {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
	return n, s
}

func refusing(t *testing.T) (*harness.Node, *harness.Sidecar) { return scripted(t, refuses) }

func uplink(t *testing.T) (*harness.Node, *harness.Sidecar) { return scripted(t, namesUplink) }

// stuck has an owner whose IPv4 address is its last claim, and a plugin that
// cannot free it any more.
func stuck(t *testing.T) (*harness.Node, *harness.Sidecar) {
	t.Helper()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Launch(t, "--enable-ipv6=false")
	s.WaitReady(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	n.InstallScript(t, "host-local", cannotFree)
	return n, s
}

func scripted(t *testing.T, script string) (*harness.Node, *harness.Sidecar) {
	t.Helper()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "scripted"})
	n.InstallScript(t, "scripted", script)
	s := n.Launch(t)
	s.WaitReady(t)
	return n, s
}

func served(t *testing.T, nw harness.Network, flags ...string) (*harness.Node, *harness.Sidecar) {
	t.Helper()
	n := nodeWith(t, nw)
	return n, n.Start(t, flags...)
}

func nodeWith(t *testing.T, nw harness.Network) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", nw)
	return n
}
