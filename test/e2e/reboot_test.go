package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// podTries is how often a pod asks for an address after the owner has asked.
const podTries = 20

func TestRebootKeepsLeaseFile(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	network := harness.Network{Name: "pods", Subnets: []string{"10.15.0.0/29"}, CNIVersion: "1.0.0"}
	n.WriteNetwork(t, "05-cilium", network)
	n.Flags = []string{"--enable-ipv6=false"}
	pods := n.PodsOf(t, network)
	s := n.Start(t)
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	for i := 0; ; i++ {
		if _, err := pods.TryAdd(fmt.Sprintf("pod-%d", i)); err != nil {
			break // the range is full
		}
	}
	lease := filepath.Join(n.StoreDir, "pods", held[0])
	before := stat(t, lease)
	s.Kill(t)

	n.Reboot(t)
	hungry := startPodRetrier(t, pods)
	s = n.Start(t)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	hungry.waitTries(t, podTries)
	if got := hungry.stop(); slices.Contains(got, held[0]) {
		t.Errorf("after the reboot a pod was given %s, which is held", held[0])
	}
	after := stat(t, lease)
	if !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the lease file is of %s and was of %s: it was removed and made again", after.ModTime(), before.ModTime())
	}
}

func TestRebootRemoteStore(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	plugin := n.InstallScripted(t, "calico-ipam")
	n.WriteNetwork(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "calico-ipam", IPAM: map[string]any{
		"subnet": "10.15.0.0/24", "cooldown": true,
	}})
	n.Flags = []string{"--enable-ipv6=false"}
	s := n.Start(t)
	held := map[string][]string{}
	for _, owner := range []string{"router", "health"} {
		held[owner] = s.Allocate(t, harness.Request{Owner: owner}).Addresses()
	}
	before := plugin.Verbs(t)
	s.Kill(t)

	n.Reboot(t)
	s = n.Start(t)
	for owner, ips := range held {
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: owner}).Addresses(), ips)
	}
	s.Stop(t)
	since := plugin.Verbs(t)[len(before):]
	if slices.Contains(since, "DEL") || slices.Contains(since, "ADD") {
		t.Errorf("since the reboot the plugin was called for %q; want neither DEL nor ADD", since)
	}
	wantAddresses(t, plugin.Holds(t), append(held["router"], held["health"]...))
}

// podRetrier asks for an address all the time.
type podRetrier struct {
	tries     atomic.Int64
	stopped   chan struct{}
	allocated chan []string
}

func startPodRetrier(t *testing.T, pods harness.Pods) *podRetrier {
	t.Helper()
	p := &podRetrier{stopped: make(chan struct{}), allocated: make(chan []string, 1)}
	go func() {
		var got []string
		for {
			select {
			case <-p.stopped:
				p.allocated <- got
				return
			default:
			}
			if ips, err := pods.TryAdd("a-hungry-pod"); err == nil {
				got = append(got, ips...)
			}
			p.tries.Add(1)
		}
	}()
	t.Cleanup(func() { p.stop() })
	return p
}

// waitTries waits for so many tries from now on.
func (p *podRetrier) waitTries(t *testing.T, want int64) {
	t.Helper()
	until := p.tries.Load() + want
	harness.Eventually(t, "a pod to ask again and again", func() error {
		if p.tries.Load() < until {
			return errors.New("not often enough yet")
		}
		return nil
	})
}

// stop returns what the pod was given.
func (p *podRetrier) stop() []string {
	select {
	case <-p.stopped:
		return nil
	default:
	}
	close(p.stopped)
	return <-p.allocated
}

func stat(t *testing.T, file string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(file)
	harness.Must(t, err)
	return info
}
