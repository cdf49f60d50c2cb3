package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// delegated-ipam-bridge network removes the file when its range may be another node's: a sidecar that
// has read it allocates nothing from it any more, and serves held addresses.
//
//evidence:install/ranges the sidecar does not allocate without its file
func TestConfFileRemoved(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	file := filepath.Join(n.ConfDir, "10-pods.conflist")
	s := n.Start(t, "--enable-ipv6=false", "--cni-conf-file="+file)
	router := s.AllocateFor(t, "router")
	harness.Must(t, os.Rename(file, file+".removed"))
	texts := []string{file, "no such file"}
	s.WaitNotReady(t, texts...)
	s.TryAllocate(t, harness.Request{Owner: "health"}).WantError(t, http.StatusBadGateway, texts...)
	wantAddresses(t, s.AllocateFor(t, "router"), router)
	s.Release(t, router...)
	if left := n.Leases(t); len(left) > 0 {
		t.Errorf("%v are still leased", left)
	}
	harness.Must(t, os.Rename(file+".removed", file))
	s.WaitReady(t)
	s.AllocateFor(t, "health")
}
