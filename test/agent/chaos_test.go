package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// chaosRest is --excess-ip-release-delay while things are killed: short enough
// that much is given back, and still five times the agent's update interval.
const chaosRest = 5 * time.Second

func TestChaos(t *testing.T) {
	l := newLab(t, ipv4Only(), chaosRest)
	length, seed := chaosLength(t), chaosSeed(t)
	l.figure(t, "length, seed", fmt.Sprintf("%s, %d", length, seed))
	l.sidecar.mustStart(t)
	l.bridge.mustStart(t)
	l.mustServe(t, l.agent.mustStart(t))

	book := newLedger()
	w := &watch{lab: l, ledger: book, grace: time.Minute}
	c := &churn{lab: l, ledger: book, failed: map[string]int{}}
	victims := []*victim{
		{program: l.bridge, lives: 15 * time.Second, down: 3 * time.Second},
		{program: l.sidecar, lives: 15 * time.Second, down: 3 * time.Second},
		{program: l.agent, lives: 20 * time.Second, down: 3 * time.Second, born: func(ctx context.Context, now *life) {
			w.lives.Go(func() { w.life(ctx, now) })
		}},
		{program: l.apiServer, lives: 40 * time.Second, down: 5 * time.Second},
	}
	left := l.letLoose(t, length, seed, victims, w, c)
	l.calmsDown(t, w, book)
	l.tell(t, victims, w, c, left)
	for _, v := range book.broken() {
		t.Error(v)
	}
}

// letLoose kills and churns for a while. It returns the pods that are left;
// every program has been started again, if it could.
func (l *lab) letLoose(t *testing.T, length time.Duration, seed uint64, victims []*victim, w *watch, c *churn) []*pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var all sync.WaitGroup
	for n, v := range victims {
		all.Go(func() {
			if err := v.hunt(ctx, rand.New(rand.NewPCG(seed, uint64(100+n)))); err != nil {
				t.Errorf("%s: %v", v.program.name, err)
			}
		})
	}
	all.Go(func() { w.books(ctx) })
	all.Go(func() { w.endpoints(ctx) })
	left := c.run(ctx, seed)
	all.Wait()
	w.lives.Wait()
	return left
}

// calmsDown: with nothing killed any more, everything runs again, every running
// pod is reached, and the books agree.
func (l *lab) calmsDown(t *testing.T, w *watch, book *ledger) {
	t.Helper()
	begin := time.Now()
	mustEventually(t, "the agent to be well again", 5*time.Minute, func() error {
		if !l.agent.life.running() { // it gives up if the API server was away at its start
			l.agent.mustStart(t)
		}
		return agentOK(t.Context())
	})
	if err := eventually(t.Context(), w.grace, func() error { return w.intact(t.Context(), book.now()) }); err != nil {
		t.Errorf("at the end: %v", err)
	}
	if err := eventually(t.Context(), 20*time.Minute, func() error { return l.settledWith(t, len(book.now())) }); err != nil {
		t.Errorf("at the end the books do not agree: %v", err)
	}
	b, err := l.books(t.Context())
	must(t, err)
	for _, r := range book.now() {
		for _, ip := range r.ips {
			if want := podNamespace + "/" + r.name; !ownedBy(b.used[ip], want) {
				t.Errorf("at the end %s of %s is used by %q", ip, want, b.used[ip])
			}
		}
	}
	l.figure(t, "from the last kill until all books agree", time.Since(begin))
	l.figure(t, "at the end: host-local's store, pool, used, free", fmt.Sprintf("%d = %d = %d + %d", len(b.store), len(b.pool), len(b.used), len(b.pool)-len(b.used)))
}

// ownedBy knows how the agent marks what it has found at its start.
func ownedBy(owner, want string) bool { return owner == want || owner == want+" [restored]" }

func (l *lab) tell(t *testing.T, victims []*victim, w *watch, c *churn, left []*pod) {
	t.Helper()
	for _, v := range victims {
		l.figure(t, v.program.name+": killed, ended by itself", fmt.Sprintf("%d, %d", v.kills, v.ownEnds))
	}
	l.figure(t, "agents that came back and had every running pod", w.restarts)
	l.figure(t, "from the start of an agent until all of them are ready and answer", quantiles(w.restored))
	l.figure(t, "comparisons of the books while killing", w.looks)
	l.figure(t, "addresses in the pool: at least, at most; taken back while killing", fmt.Sprintf("%d, %d; %d", w.pool[0], w.pool[1], w.withdrawn))
	l.figure(t, "pods started, deleted, left", fmt.Sprintf("%d, %d, %d", c.ledger.added, c.ledger.dropped, len(left)))
	l.figure(t, "attempts that failed and were repeated: ADD, DEL", fmt.Sprintf("%d, %d", c.failed["ADD"], c.failed["DEL"]))
	l.figure(t, "start of one pod, with its repetitions", quantiles(c.took))
	l.figure(t, "violations", len(c.ledger.broken()))
}

func chaosLength(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(mustEnv(t, "AGENT_TEST_CHAOS"))
	if err != nil {
		t.Fatalf("AGENT_TEST_CHAOS: %v; expected a duration such as 10m", err)
	}
	return d
}

func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("AGENT_TEST_SEED")
	if text == "" {
		return rand.Uint64N(1 << 32)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("AGENT_TEST_SEED: %v; expected the number that an earlier run printed", err)
	}
	return seed
}

// same tells whether two lists have the same addresses.
func same(a, b []netip.Addr) bool {
	sorted := func(ips []netip.Addr) []netip.Addr { return slices.SortedFunc(slices.Values(ips), netip.Addr.Compare) }
	return slices.Equal(sorted(a), sorted(b))
}
