package bridge

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// TestMain removes client-go's global error handlers: one sleeps depending on the time of the last
// error, which is not simulated time.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// After an outage each of many bridges streams its CiliumNode within RetryInterval and, if its agent has
// used all addresses, publishes others with one write in the next one. It streams its pods in the third. All
// together send less than 20 requests in any second.
func TestRequestsAfterOutage(t *testing.T) {
	const bridges, slots = 100, 8
	const limit = 3                // requests of a bridge in ten seconds
	const most = 20                // requests of all in a second
	const agents = 4 * time.Second // when the agents write
	synctest.Test(t, func(t *testing.T) {
		api, config := apiserver.StartPiped(t)
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		var running sync.WaitGroup
		name := func(i int) string { return fmt.Sprint("node-", i) }
		for i := range bridges {
			api.Create(name(i), apiserver.Object{})
			c, err := newController(ctx, options.Bridge{
				NodeName: name(i), Host: "/none", Pool: "default", MinAllocate: slots, PreAllocate: slots, ReleaseDelay: time.Hour, WatchPods: true,
			}, config(name(i)), logging.Discard())
			if err != nil {
				t.Fatal(err)
			}
			c.allocator = newFixture() // its daemon
			running.Go(func() { c.run(ctx) })
		}
		published := func(i int) int {
			n, _ := api.Node(t, name(i))
			return len(n.Pool)
		}
		// use makes an agent use all published addresses.
		use := func(i int) {
			n, _ := api.Node(t, name(i))
			used := map[string]apiserver.Entry{}
			for ip, e := range n.Pool {
				used[ip] = apiserver.Entry{Owner: "default/" + ip, Resource: e.Resource}
			}
			if !api.UpdateStatus(name(i), n.Version, used, n.Release) {
				t.Fatal("a conflict")
			}
		}
		advance(5 * time.Minute)
		for _, outage := range []struct {
			what   string
			length time.Duration
			then   func() (waiting []int)
		}{
			{"new pods on one node", 20 * time.Second, func() []int { api.AddPods(name(0), slots); return nil }},
			{"addresses used on all nodes", 20 * time.Second, func() (all []int) {
				for i := range bridges {
					use(i)
					all = append(all, i)
				}
				return all
			}},
			{"a long outage", 5 * time.Minute, func() []int { api.AddPods(name(0), 4*slots); return nil }},
		} {
			var before []int
			for i := range bridges {
				before = append(before, published(i))
			}
			api.Down()
			advance(outage.length)
			api.Up()
			up := time.Now()
			advance(agents)
			waiting := outage.then()
			advance(15*time.Second - agents)
			for _, i := range waiting {
				if published(i) <= before[i] {
					t.Errorf("%s: 15 s later %s has the same %d addresses", outage.what, name(i), before[i])
				}
			}
			advance(3*kube.RetryInterval - 15*time.Second + time.Second)
			if published(0) <= before[0] {
				t.Errorf("%s: %s has the same %d addresses", outage.what, name(0), before[0])
			}
			sent, perSecond := map[string][]string{}, map[int]int{}
			for _, r := range api.Requests() {
				if d := r.At.Sub(up); d >= 0 {
					perSecond[int(d.Seconds())]++
					if d < 10*time.Second {
						sent[r.Agent] = append(sent[r.Agent], r.Verb+" "+r.Resource)
					}
				}
			}
			for node, requests := range sent {
				if len(requests) > limit {
					t.Errorf("%s: %s sends in 10 s %q; want at most %d", outage.what, node, requests, limit)
				}
			}
			if n := slices.Max(slices.Collect(maps.Values(perSecond))); n >= most {
				t.Errorf("%s: requests in each second are %v; want less than %d", outage.what, perSecond, most)
			}
			t.Logf("%s: requests in each second %v", outage.what, perSecond)
			advance(5 * time.Minute)
		}
		cancel()
		running.Wait()
	})
}
