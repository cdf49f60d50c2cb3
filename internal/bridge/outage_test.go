package bridge

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sort"
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
// error, which is not simulated time. It runs one goroutine at a time: the race detector of Go 1.26 ends the
// process if two goroutines of a synctest bubble receive from expired timers at the same time
// (https://github.com/golang/go/issues/78156), which a hundred bridges do in every third run.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// After an outage each of many bridges streams its CiliumNode within RetryInterval and, if its agent has
// used all addresses, publishes others with one write in the next one. It streams its pods in the third. The
// API server receives at most 20 requests of all of them in any second, even if it or the nodes pause for
// half of one: those of the pause follow it together.
func TestRequestsAfterOutage(t *testing.T) {
	const bridges, slots = 100, 8
	const limit = 3 // requests of a bridge in ten seconds
	const most = 20 // requests of all in a second after a pause
	const pause = time.Second / 2
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
			{"a short outage", 2 * time.Second, func() []int { api.AddPods(name(0), slots); return nil }},
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
			advance(2*kube.RetryInterval + time.Second - agents)
			for _, i := range waiting {
				if published(i) <= before[i] {
					t.Errorf("%s: two intervals later %s has the same %d addresses", outage.what, name(i), before[i])
				}
			}
			advance(kube.RetryInterval)
			if published(0) <= before[0] {
				t.Errorf("%s: %s has the same %d addresses", outage.what, name(0), before[0])
			}
			sent, at := map[string][]string{}, []time.Duration{}
			for _, r := range api.Requests() {
				if d := r.At.Sub(up); d >= 0 {
					at = append(at, d)
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
			slices.Sort(at)
			busiest := 0
			for i, from := range at {
				busiest = max(busiest, sort.Search(len(at)-i, func(n int) bool { return at[i+n] >= from+pause+time.Second }))
			}
			if busiest > most {
				t.Errorf("%s: %d requests in the busiest second after a pause of %s; want at most %d", outage.what, busiest, pause, most)
			}
			advance(5 * time.Minute)
		}
		cancel()
		running.Wait()
	})
}

// The pods of a bridge that may read its CiliumNode, but not watch it, are watched again after an outage.
func TestPodsAfterOutageWithoutWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, config := apiserver.StartPiped(t)
		api.Allow(func(p apiserver.Permission) bool {
			return p.Resource != resourceNodes || p.Verb != "watch" && p.Verb != "list"
		})
		api.Create("worker", apiserver.Object{})
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		c, err := newController(ctx, options.Bridge{
			NodeName: "worker", Host: "/none", Pool: "default", MinAllocate: 8, PreAllocate: 8, ReleaseDelay: time.Hour, WatchPods: true,
		}, config("worker"), logging.Discard())
		if err != nil {
			t.Fatal(err)
		}
		c.allocator = newFixture() // its daemon
		var running sync.WaitGroup
		running.Go(func() { c.run(ctx) })
		for _, pods := range []int{8, 16} {
			advance(5 * time.Minute)
			api.AddPods("worker", 8)
			advance(5 * time.Minute)
			if n, _ := api.Node(t, "worker"); len(n.Pool) < pods+8 {
				t.Errorf("%d addresses for %d pods; want 8 free ones, too", len(n.Pool), pods)
			}
			api.Down()
			advance(time.Minute)
			api.Up()
		}
		cancel()
		running.Wait()
	})
}
