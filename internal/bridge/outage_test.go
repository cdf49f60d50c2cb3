package bridge

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// TestMain removes client-go's global error handlers: one sleeps depending on the time of the last
// error, which is not simulated time.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// After an outage each of many bridges sends at most three requests in ten seconds, spread over time: a
// stream of its CiliumNode, one of its pods, and perhaps a read before the first of them. One with a new pod
// publishes an address for it.
//
//evidence:design/bridge after an outage of the API server each bridge sends at most three requests in ten seconds
func TestRequestsAfterOutage(t *testing.T) {
	const bridges, slots = 100, 4
	const limit = 3 // requests of a bridge in ten seconds
	const most = 45 // requests of all in a second; about 20 on average
	synctest.Test(t, func(t *testing.T) {
		api, config := apiserver.StartPiped(t)
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		var running sync.WaitGroup
		name := func(i int) string { return fmt.Sprint("node-", i) }
		for i := range bridges {
			api.Create(name(i), apiserver.Object{})
			c, err := newController(ctx, options.Bridge{
				NodeName: name(i), Host: "/none", Pool: "default", MinAllocate: slots, PreAllocate: slots, ReleaseDelay: time.Hour, WatchPods: true,
			}, config(name(i)), discardLog())
			if err != nil {
				t.Fatal(err)
			}
			c.allocator = newFixture() // its sidecar
			running.Go(func() { c.run(ctx) })
		}
		published := func(i int) int {
			n, _ := api.Node(t, name(i))
			return len(n.Pool)
		}
		advance(5 * time.Minute)
		for _, length := range []time.Duration{20 * time.Second, 5 * time.Minute} {
			before := published(0)
			api.Down()
			advance(length)
			api.AddPods(name(0), slots)
			api.Up()
			up := time.Now()
			advance(10 * time.Second)
			sent, perSecond := map[string][]string{}, map[int]int{}
			for _, r := range api.Requests() {
				if !r.At.Before(up) {
					sent[r.Agent] = append(sent[r.Agent], r.Verb+" "+r.Resource)
					perSecond[int(r.At.Sub(up).Seconds())]++
				}
			}
			for node, requests := range sent {
				if node != name(0) && len(requests) > limit {
					t.Errorf("after an outage of %s %s sends in 10 s %q; want at most %d", length, node, requests, limit)
				}
			}
			for second, n := range perSecond {
				if n > most {
					t.Errorf("%d requests in second %d after an outage of %s; want at most %d", n, second, length, most)
				}
			}
			t.Logf("requests in each second after an outage of %s: %v", length, perSecond)
			advance(2*kube.MaxRetryDelay - 10*time.Second)
			if now := published(0); now <= before {
				t.Errorf("%d addresses are published for the new pods, %d before", now, before)
			}
			advance(5 * time.Minute)
		}
		cancel()
		running.Wait()
	})
}
