package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// runCtr starts a container by ctr, whose ID is the caller's, and returns its address as the container
// sees it.
func runCtr(t *testing.T, n *node, id string) netip.Addr {
	t.Helper()
	n.ctr(t, "run", "--detach", "--cni", "--cgroup", "/"+os.Getenv("RUNTIME_TEST_CGROUP")+"/"+id, image, id)
	out := n.ctr(t, "task", "exec", "--exec-id", "ip", id, "/bin/busybox", "ip", "-4", "-o", "addr", "show", "eth0")
	fields := strings.Fields(out)
	if len(fields) < 4 {
		t.Fatalf("cannot read %q", out)
	}
	return netip.MustParsePrefix(fields[3]).Addr()
}

// endCtr ends a container without a DEL, as ctr does for one that it has detached from.
func endCtr(t *testing.T, n *node, id string) {
	t.Helper()
	n.ctr(t, "task", "delete", "--force", id)
	n.ctr(t, "container", "delete", id)
}

// ctrID is the container ID of ctr's CNI calls.
func ctrID(id string) string { return "default-" + id }

// del runs the DEL of a container with the configuration that is in the file now.
func del(t *testing.T, n *node, id string) {
	t.Helper()
	conf, err := libcni.ConfListFromFile(n.ConfDir + "/10-pods.conflist")
	check.Must(t, err)
	check.Must(t, libcni.NewCNIConfig([]string{n.BinDir}, nil).DelNetworkList(t.Context(), conf,
		&libcni.RuntimeConf{ContainerID: ctrID(id), IfName: "eth0"}))
}

// After a rollback the plugin itself adds the ID of a container again that was added through the daemon.
//
//evidence:design/reliability the same container ID is added by the plugin after a rollback
func TestRollbackAndReusedID(t *testing.T) {
	for name, test := range map[string]struct{ running, spooled bool }{
		"daemon running": {running: true},
		"daemon stopped": {},
		"DEL in spool":   {spooled: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			host := n.hostLocal("10.15.0.0/24")
			n.configure(t, n.through(host))
			n.startContainerd(t)
			s := n.Start(t)
			first := runCtr(t, n, "web")
			beside := n.mustRun(t, "beside")

			if !test.running {
				s.Kill(t)
			}
			endCtr(t, n, "web")
			if test.spooled {
				del(t, n, "web")
			}
			n.configure(t, host)
			del(t, n, "web")
			again := runCtr(t, n, "web")
			if again == first {
				t.Errorf("both containers got %s; the plugin takes the next address", again)
			}
			if !test.running {
				s = n.Start(t)
			}
			cluster.MustEventually(t, "the daemon to drop the record", convergeTimeout, func() error {
				if a := s.Attachment(t, "cni/"+ctrID("web")+"/eth0"); a != nil {
					return fmt.Errorf("%+v", *a)
				}
				return nil
			})
			besideIP, err := n.address(t.Context(), beside)
			check.Must(t, err)
			other := runCtr(t, n, "other")
			running := []oracle.Lease{
				{Network: network, IP: again, ContainerID: ctrID("web"), Interface: "eth0"},
				{Network: network, IP: besideIP, ContainerID: beside, Interface: "eth0"},
				{Network: network, IP: other, ContainerID: ctrID("other"), Interface: "eth0"},
			}
			if err := oracle.Compare(n.Leases(t), running); err != nil {
				t.Errorf("the running containers instead of the list: %v", err)
			}

			check.Must(t, errors.Join(n.stop(t.Context(), beside), n.remove(t.Context(), beside)))
			for _, id := range []string{"web", "other"} {
				endCtr(t, n, id)
				del(t, n, id)
			}
			s.Kill(t) // a start looks all leases up, otherwise that takes up to 5 minutes
			n.Start(t)
			n.waitConsistent(t, 0)
		})
	}
}
