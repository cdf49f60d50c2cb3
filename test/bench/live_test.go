package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	serveoptions "github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
	public "github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// live runs the whole sidecar in the test's process, over the real host-local and a real socket, so
// that "go test -bench -cpuprofile" includes it. It returns the socket.
func live(b *testing.B, interval time.Duration) string {
	b.Helper()
	n := harness.NewNode(b)
	n.WriteNetwork(b, "05-cilium", harness.IPv4Only())
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- sidecar.Run(ctx, sidecar.Config{Sidecar: serveoptions.Sidecar{
			SocketPath: n.Socket, SocketMode: 0o600, StateDir: n.StateDir,
			CNIConfDir: n.ConfDir, CNIBinDirs: []string{n.BinDir}, Pools: map[string]string{public.DefaultPool: ""},
			NodeName: n.Name, IPAMDefaultIPPool: public.DefaultPool, EnableIPv4: true, LocalRouterIPv4: netip.MustParseAddr("10.15.0.1"), Owners: []string{"*"},
			PluginTimeout: time.Minute, MaxPluginProcesses: 4, MaxQueuedRequests: 1024, VerifyInterval: interval,
			CNIIfName: "eth0", IPAMExpiration: time.Minute,
		}}, log)
	}()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	harness.Eventually(b, "the sidecar to be ready", newClient(n.Socket).ready)
	return n.Socket
}

func BenchmarkAllocateRelease(b *testing.B) {
	c := newClient(live(b, time.Hour))
	for b.Loop() {
		pair(b, c, owner)
	}
}

// b.RunParallel would make more clients where there are more processors.
func BenchmarkEightClients(b *testing.B) {
	socket := live(b, time.Hour)
	b.ResetTimer()
	var begun atomic.Int64
	var clients sync.WaitGroup
	for number := range 8 {
		clients.Go(func() {
			c, owner := newClient(socket), fmt.Sprintf("default/pod-%d", number)
			for begun.Add(1) <= int64(b.N) {
				pair(b, c, owner)
			}
		})
	}
	clients.Wait()
}

func BenchmarkHeldLookup(b *testing.B) { held(b, 0) }

func BenchmarkHeldVerified(b *testing.B) { held(b, time.Hour) }

func held(b *testing.B, interval time.Duration) {
	c := newClient(live(b, interval))
	for b.Loop() {
		if _, _, err := c.allocate(owner); err != nil {
			b.Fatal(err)
		}
	}
}

func pair(b *testing.B, c *client, owner string) {
	ip, _, err := c.allocate(owner)
	if err == nil {
		_, err = c.release(ip)
	}
	if err != nil {
		b.Error(err)
	}
}
