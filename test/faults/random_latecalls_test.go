package faults

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
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

const (
	// mountOwners is the number of concurrent owners, and mountSteps that of the steps of each.
	mountOwners, mountSteps = 6, 40
	// mountEvents is the number of cases on one node.
	mountEvents = 20
)

func TestRandomMounts(t *testing.T) {
	eachBatch(t, mountsAtRandom, sized(t, 1, 100), mountEvents, func(t *testing.T, st *stats, number uint64) {
		n := nodeWith(t)
		n.MountState(t)
		m := &mountBatch{batch: newBatch(t, n, number, mountOwners, "--verify-interval=1h")}
		m.start()
		m.run(mountSteps, mountEvents, m.sendRandom, func(dice *rand.Rand) { m.changeMount(st, dice) })
		m.finish()
	})
}

// mountBatch is a batch whose state directory is a mount that is covered or detached.
type mountBatch struct {
	*batch
	// checkedReadiness means that readiness was checked. Once in a batch is enough, because it is
	// updated every few seconds; changes are refused immediately.
	checkedReadiness bool
}

// changeMount covers or detaches the state directory during requests, and restores it. Then it kills
// the daemon in one of four cases: the disk must have every acknowledged change.
func (m *mountBatch) changeMount(st *stats, dice *rand.Rand) {
	back := m.daemon.UnmountState
	if dice.IntN(2) == 0 {
		m.daemon.MountOverState(m.t)
	} else {
		m.daemon.UnmountState(m.t)
		back = m.daemon.RemountState
	}
	// Pending requests are served or refused; then no client sends another one.
	m.requestLock.Lock()
	m.wantRefused(dice)
	if got := m.daemon.ListStateMount(m.t); len(got) > 0 {
		m.t.Errorf("the directory in place of the state directory has %q; want it empty", got)
	}
	if !m.checkedReadiness {
		m.daemon.WaitNotReady(m.t, "")
	}
	back(m.t)
	if !m.checkedReadiness {
		m.daemon.WaitReady(m.t)
		m.checkedReadiness = true
	}
	if dice.IntN(4) == 0 {
		m.daemon.Kill(m.t)
		st.kills.Add(1)
		m.start()
	}
	m.requestLock.Unlock()
}

// wantRefused requests changes, none of which may be started.
func (m *mountBatch) wantRefused(dice *rand.Rand) {
	// An ADD or DEL in the background may have started before.
	held := map[string]bool{}
	for _, a := range m.daemon.List(m.t) {
		held[a.ContainerID] = a.State == "held"
	}
	unfinished := func(l oracle.Lease) bool { return !held[l.ContainerID] }
	before := slices.DeleteFunc(m.node.Leases(m.t), unfinished)
	newcomer := &batchOwner{name: "newcomer"}
	for _, r := range []request{allocation(newcomer.name, ""), restore("10.15.0.200", newcomer.name)} {
		m.wantNoSuccess(newcomer, r)
	}
	o := m.owners[dice.IntN(len(m.owners))]
	for _, ip := range m.history.Addresses(o.name) {
		m.wantNoSuccess(o, release(ip, o.name))
	}
	if now := slices.DeleteFunc(m.node.Leases(m.t), unfinished); !slices.Equal(now, before) {
		m.t.Errorf("the plugin's store was %v and is %v; want no change without the state directory", before, now)
	}
}

func (m *mountBatch) wantNoSuccess(o *batchOwner, r request) {
	a, _ := m.sendNow(o, r)
	if a.Status != http.StatusBadGateway && a.Status != http.StatusInternalServerError {
		m.t.Errorf("without the state directory %s %s was answered %s; want 502 or 500", r.method, r.path, a)
	}
}
