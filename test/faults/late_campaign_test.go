package faults

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// lateOwners is how many cases share a sidecar, and lateSteps what each of them does.
	lateOwners, lateSteps = 40, 6
	// outlives is how long a call may act after its process, in seconds. The server
	// forgets it earlier, so that no call acts later than it may on a busy machine.
	outlives, remembered = 3, 2
)

// lateBatches is how many batches of lateOwners cases are played.
func (s share) lateBatches() int {
	if s == full {
		return 200
	}
	return 1
}

func TestCallsThatActLateAtRandomFreeNothingThatIsHeldAndLeaveNothing(t *testing.T) {
	t.Parallel()
	count := newTally(t, lateAtRandom)
	for i := range wantedShare(t).lateBatches() {
		t.Run(fmt.Sprintf("batch %d", i), func(t *testing.T) {
			t.Parallel()
			count.watchMany(t, lateOwners)
			l := newLateBatch(t, uint64(i), lateOwners)
			l.start()
			l.run(lateSteps, 2, l.step, func(*rand.Rand) {
				l.kill()
				count.killed(1)
				l.start()
				l.resume()
			})
			l.finish()
		})
	}
}

// lateBatch is a batch over a central server at which calls act late.
type lateBatch struct {
	*batch
	server harness.Central

	podsMu sync.Mutex
	pods   map[string]bool
}

func newLateBatch(t *testing.T, number uint64, owners int) *lateBatch {
	t.Helper()
	n := harness.NewNode(t)
	facts, quirks := map[string]any{}, map[string]any{"lateSeconds": remembered}
	if number%2 == 1 {
		facts["repeatedAdd"], quirks["repeatedAdd"] = "same-answer", "same"
	}
	l := &lateBatch{server: n.InstallCentral(t, outlives, facts, quirks), pods: map[string]bool{}}
	l.batch = newBatch(t, n, number, owners, "--plugin-timeout=1s", "--verify-interval=1h")
	return l
}

// step is one request of an owner, with a call that may act late, and what may
// happen at the server before the next one.
func (l *lateBatch) step(o *batchOwner) {
	if verb := []string{"", "DEL", "DEL", "ADD"}[o.dice.IntN(4)]; verb != "" {
		l.server.ClearOwnerScript(l.t, verb, o.name)
		l.server.SetOwnerScript(l.t, verb, o.name, lateEnd(o.dice))
	}
	l.ask(o)
	if o.dice.IntN(2) == 0 {
		l.server.RunLateCalls(l.t, o.name)
	}
	if o.dice.IntN(4) == 0 {
		l.pod(o)
	}
}

// lateEnd is how the process of a late call ends. One that hangs costs its time limit.
func lateEnd(dice *rand.Rand) string {
	ends := []string{`"exitCode":1`, `"exitCode":1`, `"killSelf":9`, `"killSelf":9`, `"stdout":"<html>","exitCode":1`, `"hang":true`}
	return fmt.Sprintf(`{"times":1,"late":true,%s}`, ends[dice.IntN(len(ends))])
}

// pod begins a pod beside the owner, or ends the one that is there. It has its
// addresses as any owner has.
func (l *lateBatch) pod(o *batchOwner) {
	id := "pod-" + o.name
	l.podsMu.Lock()
	lives := l.pods[id]
	l.pods[id] = !lives
	l.podsMu.Unlock()
	if lives {
		l.endPod(id)
		return
	}
	l.history.Got(id, addressesOf(l.t, l.server.Pods.Add(l.t, id))...)
}

func (l *lateBatch) endPod(id string) {
	l.history.Releasing(l.history.Has(id)...)
	l.server.Pods.Del(l.t, id)
}

// finish ends all faults and pods, lets every late call act that still can, and judges.
func (l *lateBatch) finish() {
	l.t.Helper()
	for _, o := range l.owners {
		l.server.ClearOwnerScript(l.t, "DEL", o.name)
		l.server.ClearOwnerScript(l.t, "ADD", o.name)
	}
	l.server.RunLateCalls(l.t)
	for id, lives := range l.pods {
		if lives {
			l.endPod(id)
		}
	}
	l.end()
}
