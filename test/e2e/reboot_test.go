package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// podTries is how many ADDs of a pod follow the allocation of the owner.
const podTries = 20

func TestRebootKeepsLeaseFile(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	network := harness.Network{Name: "pods", Subnets: []string{"10.15.0.0/29"}, CNIVersion: "1.0.0"}
	n.WriteNetwork(t, "05-cilium", network)
	n.Flags = []string{"--enable-ipv6=false"}
	pods := n.PodsOf(t, network)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	for i := 0; ; i++ {
		if _, err := pods.TryAdd(fmt.Sprintf("pod-%d", i)); err != nil {
			break // the range is full
		}
	}
	lease := filepath.Join(n.StoreDir, "pods", held[0])
	before := stat(t, lease)
	s.Kill(t)

	n.Reboot(t)
	retrier := startPodRetrier(t, pods)
	s = n.Start(t)
	wantAddresses(t, s.AllocateFor(t, "router"), held)
	retrier.waitTries(t, podTries)
	if got := retrier.stop(); slices.Contains(got, held[0]) {
		t.Errorf("after the reboot a pod got %s, which is held", held[0])
	}
	after := stat(t, lease)
	if !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the lease file is of %s and was of %s: it was removed and created again", after.ModTime(), before.ModTime())
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
		held[owner] = s.AllocateFor(t, owner)
	}
	before := plugin.Verbs(t)
	s.Kill(t)

	n.Reboot(t)
	s = n.Start(t)
	for owner, ips := range held {
		wantAddresses(t, s.AllocateFor(t, owner), ips)
	}
	s.Stop(t)
	since := plugin.Verbs(t)[len(before):]
	if slices.Contains(since, "DEL") || slices.Contains(since, "ADD") {
		t.Errorf("since the reboot the plugin was called for %q; want neither DEL nor ADD", since)
	}
	wantAddresses(t, plugin.Holds(t), append(held["router"], held["health"]...))
}

// podRetrier calls ADD for a pod in a loop.
type podRetrier struct {
	tries     atomic.Int64
	cancel    context.CancelFunc
	allocated chan []string
}

func startPodRetrier(t *testing.T, pods harness.Pods) *podRetrier {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &podRetrier{cancel: cancel, allocated: make(chan []string, 1)}
	go func() {
		var allocated []string
		for ; ctx.Err() == nil; p.tries.Add(1) {
			if ips, err := pods.TryAdd("retried-pod"); err == nil {
				allocated = append(allocated, ips...)
			}
		}
		p.allocated <- allocated
		close(p.allocated)
	}()
	t.Cleanup(func() { p.stop() })
	return p
}

// waitTries waits for that many ADDs from now on.
func (p *podRetrier) waitTries(t *testing.T, want int64) {
	t.Helper()
	until := p.tries.Load() + want
	harness.Eventually(t, "ADDs of a pod", func() error {
		if p.tries.Load() < until {
			return errors.New("too few")
		}
		return nil
	})
}

// stop returns the addresses that the pod got.
func (p *podRetrier) stop() []string {
	p.cancel()
	return <-p.allocated
}

func stat(t *testing.T, file string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(file)
	harness.Must(t, err)
	return info
}
