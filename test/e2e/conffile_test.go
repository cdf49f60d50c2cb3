package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// delegated-ipam-bridge network removes the file when its range may be another node's: a daemon that
// has read it allocates nothing from it any more, and serves held addresses.
func TestConfFileRemoved(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	file := filepath.Join(n.ConfDir, "10-pods.conflist")
	s := n.Start(t, "--enable-ipv6=false", "--cni-conf-file="+file)
	router := s.AllocateFor(t, "router")
	check.Must(t, os.Rename(file, file+".removed"))
	texts := []string{file, "no such file"}
	s.WaitNotReady(t, texts...)
	s.TryAllocate(t, harness.Request{Owner: "health"}).WantError(t, http.StatusBadGateway, texts...)
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	s.Release(t, router...)
	if left := n.Leases(t); len(left) > 0 {
		t.Errorf("%v are still leased", left)
	}
	check.Must(t, os.Rename(file+".removed", file))
	s.WaitReady(t)
	s.AllocateFor(t, "health")
}

// The machine boots as another Node, whose file is not written yet.
func TestConfFileMissingAtStart(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	file := filepath.Join(n.ConfDir, "10-pods.conflist")
	args := []string{"--enable-ipv6=false", "--cni-conf-file=" + file}
	s := n.Start(t, args...)
	router := s.AllocateFor(t, "router")
	s.Stop(t)
	check.Must(t, os.Remove(file))
	s = n.Launch(t, args...)
	s.WaitServing(t)
	texts := []string{router[0], "ranges", file, "no such file"}
	s.TryAllocate(t, harness.Request{Owner: "router"}).WantError(t, http.StatusBadGateway, texts...)
	s.TryRestore(t, router[0], "router").WantError(t, http.StatusInternalServerError, texts...)
	other := harness.IPv4Only()
	other.Subnets = []string{"10.77.0.0/24"}
	n.WriteNetwork(t, "10-pods", other)
	s.WaitReady(t)
	if got := s.AllocateFor(t, "router"); !strings.HasPrefix(got[0], "10.77.0.") {
		t.Errorf("router got %v", got)
	}
	if left := n.Leases(t); len(left) != 1 {
		t.Errorf("%v are leased", left)
	}
}
