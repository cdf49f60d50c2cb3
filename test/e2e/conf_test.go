package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestConfMissingAtStart(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	s := n.Launch(t)
	s.WaitServing(t)
	if err := s.Ready(); err == nil {
		t.Error("the sidecar is ready without a configuration")
	}
	a := s.TryAllocate(t, harness.Request{Owner: "router"})
	if a.Status != http.StatusBadGateway || !strings.Contains(string(a.Body), n.ConfDir) {
		t.Errorf("answered %s; want 502 and the name of the folder %s", a, n.ConfDir)
	}

	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	s.WaitReady(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	s.WaitConsistent(t)
}

func TestConfDirMissingAtStart(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	harness.Must(t, os.Remove(n.ConfDir))
	s := n.Launch(t)
	s.WaitServing(t)
	harness.Must(t, os.Mkdir(n.ConfDir, 0o755))
	n.WriteNetwork(t, "05-cilium", harness.DualStack())
	s.WaitReady(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	s.WaitConsistent(t)
}

func TestTheFirstConfigurationThatDelegatesIPAMIsUsed(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteConf(t, "01-loopback.conflist", []byte(`{"cniVersion":"1.0.0","name":"lo","plugins":[{"type":"loopback"}]}`))
	n.WriteNetwork(t, "05-first", harness.IPv4Only())
	n.WriteNetwork(t, "06-second", harness.Network{Name: "second", Subnets: []string{"10.16.0.0/24"}, CNIVersion: "1.0.0"})
	s := n.Start(t, "--enable-ipv6=false")
	wantInSubnet(t, s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4, "10.15.0.0/24")
}

func TestANetworkIsChosenByName(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-first", harness.IPv4Only())
	n.WriteNetwork(t, "06-second", harness.Network{Name: "second", Subnets: []string{"10.16.0.0/24"}, CNIVersion: "1.0.0"})
	s := n.Start(t, "--enable-ipv6=false", "--cni-network=second")
	wantInSubnet(t, s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4, "10.16.0.0/24")
}

func TestOneConfigurationFileIsReadAndTheFolderIsNot(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "05-first", harness.IPv4Only())
	n.WriteNetwork(t, "06-second", harness.Network{Name: "second", Subnets: []string{"10.16.0.0/24"}, CNIVersion: "1.0.0"})
	s := n.Start(t, "--enable-ipv6=false", "--cni-conf-file="+filepath.Join(n.ConfDir, "06-second.conflist"))
	wantInSubnet(t, s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4, "10.16.0.0/24")
}

func TestConfChanged(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t, "--verify-interval=0s") // so that CHECK is asked each time
	old := s.Allocate(t, harness.Request{Owner: "old"})

	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", Subnets: []string{"10.17.0.0/24"}, CNIVersion: "1.0.0"})
	waitForSubnet(t, s, "10.17.0.")
	if again := s.Allocate(t, harness.Request{Owner: "old"}); again.Address.IPv4 != old.Address.IPv4 {
		t.Errorf("the old owner has %s after the change; want %s", again.Address.IPv4, old.Address.IPv4)
	}
	leases := len(n.Leases(t))
	s.Release(t, old.Address.IPv4)
	wantLeases(t, n, leases-1)
}

func TestConfBroken(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	s := n.Start(t)
	n.WriteConf(t, "05-cilium.conflist", []byte(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [`))

	harness.Eventually(t, "the broken file to be reported", func() error {
		for _, pool := range s.Health(t).DelegatedIPAM.Pools {
			if strings.Contains(pool.Error, filepath.Join(n.ConfDir, "05-cilium.conflist")) {
				return nil
			}
		}
		return fmt.Errorf("health says %+v", s.Health(t))
	})
	if err := s.Ready(); err != nil {
		t.Errorf("with the last good configuration: %v", err)
	}
	wantInSubnet(t, s.Allocate(t, harness.Request{Owner: "router"}).Address.IPv4, "10.15.0.0/24")
}

// waitForSubnet waits until an owner that never asked before gets an address with
// that beginning: the watcher reads the folder in its own time.
func waitForSubnet(t *testing.T, s *harness.Sidecar, beginning string) {
	t.Helper()
	next := 0
	harness.Eventually(t, "the changed configuration to be used", func() error {
		next++
		got := s.Allocate(t, harness.Request{Owner: fmt.Sprintf("new-%d", next)})
		if !strings.HasPrefix(got.Address.IPv4, beginning) {
			return errors.New("a new owner still gets " + got.Address.IPv4)
		}
		return nil
	})
}
