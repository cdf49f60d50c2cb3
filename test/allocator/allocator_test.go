// Package allocator lets the planner of the bridge and the allocator of Cilium's ipam mode crd (pkg/ipam)
// work on one CiliumNode, in random order ("make allocator-test"). The tests of the planner have an agent
// that imitates it, so that they are fast and repeatable; TestRules compares its rules with the real one.
package allocator

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

// seed repeats a run. The allocator takes the addresses of a pool in the order of a Go map, so a run
// with the same seed has the same steps only until the first allocation.
var seed = flag.Uint64("seed", 0, "seed of the runs; 0 for a random one")

// TestAllocator lets bridge, allocator and sidecar act in random order, with pods that come and go, and
// crashes of bridge and agent at any moment. At every moment the address of a pod is held and in the
// pool, and every address in the pool is held. A restarted agent keeps every pod. Without further events
// all agree, as many slots are held as the settings demand, and no release is left.
func TestAllocator(t *testing.T) {
	const runs, steps = 200, 200
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	for run := range runs {
		t.Run(fmt.Sprint("seed ", from+uint64(run)), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(from+uint64(run), 0)))
			for range steps {
				w.step()
				w.check()
			}
			w.converge()
		})
	}
}
