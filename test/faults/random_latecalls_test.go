package faults

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// lateOwners is the number of cases that share a daemon, and lateSteps that of the steps of each.
	lateOwners, lateSteps = 40, 6
	// outlives is how long a call may act after its process, in seconds. The server drops it
	// earlier, because on a busy machine a call could act later than it may.
	outlives, remembered = 6, 2
)

func TestRandomLateCalls(t *testing.T) {
	eachBatch(t, lateAtRandom, sized(t, 1, 200), lateOwners, func(t *testing.T, st *stats, number uint64) {
		l := newLateBatch(t, number, lateOwners)
		l.start()
		l.run(lateSteps, 2, l.step, func(*rand.Rand) {
			l.kill()
			st.kills.Add(1)
			l.start()
			l.requestLock.Unlock()
		})
		l.finishLate()
	})
}

// lateBatch is a batch over a central server that executes calls late.
type lateBatch struct {
	*batch
	server harness.Central
}

func newLateBatch(t *testing.T, number uint64, owners int) *lateBatch {
	n := harness.NewNode(t)
	facts, quirks := map[string]any{}, map[string]any{"lateSeconds": remembered}
	if number%2 == 1 {
		facts["repeatedAdd"], quirks["repeatedAdd"] = "same-answer", "same"
	}
	l := &lateBatch{server: n.InstallCentral(t, outlives, facts, quirks)}
	l.batch = newBatch(t, n, number, owners, "--plugin-timeout=1s", "--verify-interval=1h")
	return l
}

// step sends a request whose plugin call may act late, may execute late calls, and may change a pod.
func (l *lateBatch) step(o *batchOwner) {
	if verb := draw(o.dice, []string{"", "DEL", "DEL", "ADD"}); verb != "" {
		l.server.ClearOwnerScript(l.t, verb, o.name)
		// A hang takes as long as --plugin-timeout.
		end := draw(o.dice, []string{`"exitCode":1`, `"exitCode":1`, `"killSelf":9`, `"killSelf":9`, `"stdout":"<html>","exitCode":1`, `"hang":true`})
		l.server.SetOwnerScript(l.t, verb, o.name, `{"times":1,"late":true,`+end+`}`)
	}
	l.sendRandom(o)
	if o.dice.IntN(2) == 0 {
		l.server.RunLateCalls(l.t, o.name)
	}
	if o.dice.IntN(4) == 0 {
		l.pod(o)
	}
}

// pod adds a pod, or deletes the one that exists. The history has its addresses too.
func (l *lateBatch) pod(o *batchOwner) {
	id := "pod-" + o.name
	if o.pod {
		l.history.ReleaseRequested(l.history.Addresses(id)...)
		l.server.Pods.Del(l.t, id)
	} else {
		for _, ip := range l.server.Pods.Add(l.t, id) {
			l.history.Allocated(id, netip.MustParseAddr(ip))
		}
	}
	o.pod = !o.pod
}

// finishLate ends all faults, executes the remaining late calls, deletes the pods and finishes.
func (l *lateBatch) finishLate() {
	for _, o := range l.owners {
		l.server.ClearOwnerScript(l.t, "DEL", o.name)
		l.server.ClearOwnerScript(l.t, "ADD", o.name)
	}
	l.server.RunLateCalls(l.t)
	for _, o := range l.owners {
		if o.pod {
			l.pod(o)
		}
	}
	l.finish()
}
