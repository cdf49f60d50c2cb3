package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const (
	// mountOwners is how many owners ask a sidecar at the same time, and mountSteps how
	// often each of them.
	mountOwners, mountSteps = 6, 40
	// mountEvents is how many cases are played on one node.
	mountEvents = 20
)

// mountBatches is how many batches of mountEvents cases are played.
func (s share) mountBatches() int {
	if s == full {
		return 100
	}
	return 1
}

func TestMountsAtRandomLoseNoChangeAndAreNeverWrittenTo(t *testing.T) {
	t.Parallel()
	count := newTally(t, mountsAtRandom)
	for i := range wantedShare(t).mountBatches() {
		t.Run(fmt.Sprintf("batch %d", i), func(t *testing.T) {
			t.Parallel()
			count.watchMany(t, mountEvents)
			n := nodeWith(t)
			n.MountState(t)
			m := &mountBatch{batch: newBatch(t, n, uint64(i), mountOwners, "--verify-interval=1h")}
			m.start()
			m.run(mountSteps, mountEvents, m.ask, func(dice *rand.Rand) { m.takeAway(count, dice) })
			m.end()
		})
	}
}

// mountBatch is a batch whose state folder is a mount that goes away.
type mountBatch struct {
	*batch
	// looked tells that readiness was waited for, which once a batch is enough: it is
	// looked after every few seconds, and each change whether it can be made.
	looked bool
}

// takeAway lets the state folder go while requests are served, and brings it back.
// One time of four the sidecar is then killed: the disk must know what was answered.
func (m *mountBatch) takeAway(count *tally, dice *rand.Rand) {
	m.t.Helper()
	back := m.sidecar.UnmountState
	if dice.IntN(2) == 0 {
		m.sidecar.MountOverState(m.t)
	} else {
		m.sidecar.UnmountState(m.t)
		back = m.sidecar.RemountState
	}
	// Requests of now are served or refused; then no other client asks.
	m.gate.Lock()
	m.wantRefused(dice)
	if got := m.sidecar.ListStateMount(m.t); len(got) > 0 {
		m.t.Errorf("the folder in the place of the state folder has %q; want nothing to be made there", got)
	}
	if m.looked {
		back(m.t)
	} else {
		m.looked = true
		m.wantReadiness(back)
	}
	if dice.IntN(4) == 0 {
		m.sidecar.Kill(m.t)
		count.killed(1)
		m.start()
	}
	m.gate.Unlock()
}

// wantReadiness waits until the sidecar is not ready, and after the return until it is.
func (m *mountBatch) wantReadiness(back func(testing.TB)) {
	m.t.Helper()
	harness.Eventually(m.t, "the sidecar not to be ready", func() error {
		if m.sidecar.Ready() == nil {
			return errors.New("it is ready without its state folder")
		}
		return nil
	})
	back(m.t)
	m.sidecar.WaitReady(m.t)
}

// wantRefused asks for changes, none of which may be made or begun.
func (m *mountBatch) wantRefused(dice *rand.Rand) {
	m.t.Helper()
	// A DEL or ADD in the background may have begun before, and is finished.
	held := map[string]bool{}
	for _, a := range m.sidecar.List(m.t) {
		held[a.ContainerID] = a.State == "held"
	}
	unfinished := func(l oracle.Lease) bool { return !held[l.ContainerID] }
	before, err := m.node.Store()
	must(m.t, err)
	before = slices.DeleteFunc(before, unfinished)
	newcomer := &batchOwner{name: "newcomer"}
	for _, r := range []request{allocation(newcomer.name, ""), restoration("10.15.0.200", newcomer.name)} {
		m.wantNoSuccess(newcomer, r)
	}
	o := m.owners[dice.IntN(len(m.owners))]
	for _, ip := range m.history.Has(o.name) {
		m.wantNoSuccess(o, release(ip, o.name))
	}
	now, err := m.node.Store()
	must(m.t, err)
	now = slices.DeleteFunc(now, unfinished)
	if fmt.Sprint(now) != fmt.Sprint(before) {
		m.t.Errorf("the plugin's store was %v and is %v; want no change without the state folder", before, now)
	}
}

func (m *mountBatch) wantNoSuccess(o *batchOwner, r request) {
	m.t.Helper()
	a, _ := m.sendNow(o, r)
	if a.Status != http.StatusBadGateway && a.Status != http.StatusInternalServerError {
		m.t.Errorf("without the state folder %s %s was answered %s; want 502 or 500", r.method, r.path, a)
	}
}
