package contract

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// startFunc starts a daemon on a new node.
type startFunc func(t *testing.T) (*harness.Node, *harness.Daemon)

// These are plugins as shell scripts. Each begins with the response to VERSION.
const (
	version = `#!/bin/sh
cat >/dev/null
if [ "$CNI_COMMAND" = VERSION ]; then
  echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'
  exit 0
fi
`
	addFailsScript = version + `if [ "$CNI_COMMAND" = ADD ]; then
  echo '{"cniVersion":"1.0.0","code":11,"msg":"no address left","details":"the range is exhausted"}'
  exit 1
fi
`
	uplinkScript = version + `if [ "$CNI_COMMAND" = ADD ]; then
  echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth1","mac":"02:00:00:00:00:01"}],"ips":[{"address":"10.15.0.7/24"}]}'
fi
`
	delFailsScript = version + `echo '{"cniVersion":"1.0.0","code":11,"msg":"the store is locked"}'
exit 1
`
)

func empty(t *testing.T) (*harness.Node, *harness.Daemon) { return start(t, harness.DualStack()) }

func ipv4Only(t *testing.T) (*harness.Node, *harness.Daemon) {
	return start(t, harness.IPv4Only(), "--enable-ipv6=false")
}

func onlyRouter(t *testing.T) (*harness.Node, *harness.Daemon) {
	return start(t, harness.DualStack(), "--owners=router")
}

// fromOtherUser returns a daemon whose client is a user that may not call.
func fromOtherUser(t *testing.T) (*harness.Node, *harness.Daemon) {
	n, s := start(t, harness.DualStack(), "--socket-mode=0666")
	return n, asOtherUser(t, n, s)
}

func routerHolds(t *testing.T) (*harness.Node, *harness.Daemon) {
	n, s := empty(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	return n, s
}

func routerExpires(t *testing.T) (*harness.Node, *harness.Daemon) {
	n, s := empty(t)
	s.Allocate(t, harness.Request{Owner: "router", Expire: true})
	return n, s
}

func noConfiguration(t *testing.T) (*harness.Node, *harness.Daemon) {
	n := harness.NewNode(t)
	s := n.Launch(t)
	s.WaitServing(t)
	harness.Eventually(t, "the missing configuration as the only reason", func() error {
		err := s.Ready()
		if err == nil || !strings.Contains(err.Error(), "no CNI configuration") || strings.Contains(err.Error(), "not respond") {
			return fmt.Errorf("it reports %v", err)
		}
		return nil
	})
	return n, s
}

func addFails(t *testing.T) (*harness.Node, *harness.Daemon) { return scripted(t, addFailsScript) }

func uplink(t *testing.T) (*harness.Node, *harness.Daemon) { return scripted(t, uplinkScript) }

// delFails starts a daemon with an attachment whose only claim is IPv4 and with a plugin whose DEL
// fails.
func delFails(t *testing.T) (*harness.Node, *harness.Daemon) {
	n := nodeWith(t, harness.IPv4Only())
	s := launch(t, n, "--enable-ipv6=false")
	s.Allocate(t, harness.Request{Owner: "router"})
	n.InstallScript(t, "host-local", delFailsScript)
	return n, s
}

func scripted(t *testing.T, script string) (*harness.Node, *harness.Daemon) {
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "scripted"})
	n.InstallScript(t, "scripted", script)
	return n, launch(t, n)
}

// containers starts a daemon whose network container runtimes use through it.
func containers(t *testing.T) (*harness.Node, *harness.Daemon) { return containersWith(t) }

// containerHolds is containers with the addresses of aContainer.
func containerHolds(t *testing.T) (*harness.Node, *harness.Daemon) {
	n, s := containers(t)
	loadSwagger(t, swaggerFile).send(t, s.Client, call{operation: "POST /cni/add", body: aContainer}).WantStatus(t, http.StatusOK)
	return n, s
}

// containersFail is containers with a plugin of which every verb fails but VERSION.
func containersFail(t *testing.T) (*harness.Node, *harness.Daemon) {
	n, s := containers(t)
	n.InstallScript(t, "host-local", delFailsScript)
	return n, s
}

// containersFromOtherUser is containers for a client that may call, but is not a container runtime.
func containersFromOtherUser(t *testing.T) (*harness.Node, *harness.Daemon) {
	n, s := containersWith(t, "--socket-mode=0666", fmt.Sprintf("--allow-uids=%d", otherID))
	return n, asOtherUser(t, n, s)
}

func containersWith(t *testing.T, flags ...string) (*harness.Node, *harness.Daemon) {
	n, network := harness.NewNode(t), harness.IPv4Only()
	network.CNIVersion, network.Socket = "1.0.0", n.Socket
	n.WriteNetwork(t, "05-cilium", network)
	return n, launch(t, n, append(flags, "--enable-ipv6=false")...)
}

func start(t *testing.T, nw harness.Network, flags ...string) (*harness.Node, *harness.Daemon) {
	n := nodeWith(t, nw)
	return n, n.Start(t, flags...)
}

func nodeWith(t *testing.T, nw harness.Network) *harness.Node {
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-cilium", nw)
	return n
}

// launch starts a ready daemon whose state is not compared at the end.
func launch(t *testing.T, n *harness.Node, flags ...string) *harness.Daemon {
	s := n.Launch(t, flags...)
	s.WaitReady(t)
	return s
}

// otherID is the ID of a user and a group that are neither root's nor our own, which may always
// call.
const otherID = 65534

// asOtherUser returns the daemon with a client of a proxy that connects as another user: clients
// without a dial function of the test's can use its socket, too.
func asOtherUser(t *testing.T, n *harness.Node, s *harness.Daemon) *harness.Daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can connect as another user")
	}
	// Without access to the directory the kernel would reject the connection.
	check.Must(t, os.Chmod(n.Dir, 0o755))
	path := filepath.Join(n.Dir, "other.sock")
	listener, err := net.Listen("unix", path)
	check.Must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := s.DialAs(harness.User{UID: otherID, GID: otherID})
			if err != nil {
				from.Close()
				continue
			}
			go copyAndClose(to, from)
			go copyAndClose(from, to)
		}
	}()
	other := *s
	other.Client = harness.Client{Socket: path}
	return &other
}

// copyAndClose copies one direction and then closes both connections.
func copyAndClose(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
	from.Close()
}
