package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The plugin of one pool hangs in as many calls as may run. In the other pool a new owner, one whose
// lease is lost and whose address a pod has, and a release are served meanwhile.
//
//evidence:design/reliability the plugin of one pool hangs
func TestHangingPool(t *testing.T) {
	t.Parallel()
	const processes = 4
	n := nodeWith(t, harness.IPv4Only())
	store := n.Store
	plugin := n.InstallScripted(t, "scripted")
	n.Store = store
	n.WriteNetwork(t, "10-hangs", harness.Network{Name: "hangs", CNIVersion: "1.0.0", Plugin: "scripted", IPAM: ranges()})
	s := n.Start(t, "--pool=hangs=hangs", "--verify-interval=0s", "--plugin-timeout=10m", fmt.Sprint("--max-plugin-processes=", processes+1)) // one is reserved for pods
	router := s.AllocateFor(t, "router")
	health := s.AllocateFor(t, "health")

	const requestWait = 80 * time.Second // docs/design/how-it-works.md, Waiting
	sent := time.Now()
	plugin.SetScript(t, "ADD", `{"gate":"go-on"}`)
	answered := make(chan harness.Response, processes)
	for i := range processes {
		go func() { answered <- s.TryAllocate(t, harness.Request{Owner: fmt.Sprint("hangs-", i), Pool: "hangs"}) }()
	}
	harness.Eventually(t, "the plugin to hang", func() error {
		if calls := plugin.CallCount(t, "ADD"); calls < processes {
			return fmt.Errorf("%d calls", calls)
		}
		return nil
	})
	s.Release(t, health...)
	n.WipeStore(t)
	n.LeaseToPod(t, "pods", router[0])
	if now := s.AllocateFor(t, "router"); now[0] == router[0] {
		t.Errorf("router has %s, which a pod has", now[0])
	}
	s.AllocateFor(t, "ingress")
	if len(answered) > 0 && time.Since(sent) < requestWait {
		t.Errorf("%+v does not hang any more", <-answered)
	}
	plugin.Open(t, "go-on")
	for range processes {
		if a := <-answered; time.Since(sent) < requestWait {
			a.WantStatus(t, http.StatusCreated)
		}
	}
	if o := n.Command(t, "gc", "--pool=hangs", "--yes"); o.ExitCode != 0 { // its store is not compared
		t.Errorf("gc: %s", o.Stderr)
	}
}
