package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// run runs a subtest with a fixture in a synctest bubble, so that waits take no time.
func run(t *testing.T, name, setups string, test func(f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, setups)
			defer f.openAll()
			test(f)
		})
	})
}

// fixture is an engine on a fake node.
type fixture struct {
	t *testing.T
	*Engine
	node     *fakeNode
	observer *fakeObserver
	log      *logrus.Logger
	logged   *logtest.Hook

	// What the commands of a scenario remember.
	begun   map[string]*begun
	locked  map[string]*operation // by owner
	answers map[string]string     // by @name
	noted   string                // @noted
	marked  time.Time
	took    time.Duration // the last command
	calls   []string      // of the plugin since trace
	past    []string      // steps since trace
}

func newFixture(t *testing.T, setups string) *fixture {
	t.Helper()
	f := &fixture{t: t, node: newFakeNode(), observer: &fakeObserver{}, begun: map[string]*begun{}, locked: map[string]*operation{}, answers: map[string]string{}}
	f.log, f.logged = logtest.NewNullLogger()
	f.log.SetLevel(logrus.DebugLevel)
	f.start(setups)
	return f
}

// start starts an engine with the default options and these setups.
func (f *fixture) start(setups string) {
	f.t.Helper()
	o := defaultOptions()
	o.Observer, o.Log = f.observer, f.log
	setUp(f.node, &o, setups)
	f.Engine = f.node.start(f.t, o)
}

// restart kills the engine, removes the fault, and starts a new engine as start does.
func (f *fixture) restart(setups string) {
	f.t.Helper()
	f.node.kill(f.t, f.Engine)
	f.inject(nil)
	f.start(setups)
}

// inject sets the fault function; nil for no faults.
func (f *fixture) inject(at func(step string) fault) {
	f.node.with(func(n *fakeNode) { n.fault = at })
}

// addr parses an IP address.
func addr(ip string) netip.Addr { return netip.MustParseAddr(ip) }

// podContainer returns a container of a pod.
func podContainer(id, pod string) call.Container {
	return call.Container{Attachment: call.Attachment{ContainerID: id, IfName: "eth0"}, Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + pod}
}

// List returns every attachment.
func (e *Engine) List() []Attachment { return slices.Collect(e.All()) }

// Lookup returns an owner's attachment in a pool, if there is one.
func (e *Engine) Lookup(pool, owner string) (Attachment, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, ok := e.position(attachment.Key{Pool: pool, Owner: owner})
	if !ok || !e.sorted[i].listed() {
		return Attachment{}, false
	}
	return e.sorted[i].view(), true
}

// get returns the attachment of an owner in the default pool; zero without one.
func (f *fixture) get(owner string) Attachment {
	a, _ := f.Lookup(client.DefaultPool, owner)
	return a
}

// lock locks the entry of an owner. The caller unlocks the operation.
func (f *fixture) lock(owner string) *operation {
	f.t.Helper()
	a, err := f.getOrCreate(attachment.Key{Pool: client.DefaultPool, Owner: owner}, User{})
	if err != nil {
		f.t.Fatal(err)
	}
	op := &operation{Operation: attachment.Operation{Key: a.Key}, engine: f.Engine, entry: a}
	if !op.tryLock() {
		f.t.Fatalf("the entry of %s is locked", owner)
	}
	return op
}

// publish changes the state of an attachment in memory.
func (f *fixture) publish(owner string, change func(*attachment.Status)) {
	op, locked := f.locked[owner]
	if !locked {
		op = f.lock(owner)
		defer op.end()
	}
	s := op.entry.Status
	change(&s)
	world{op}.Publish(s)
}

// addInvocation adds the invocation of an earlier ADD, with a change, to an owner's record.
func (f *fixture) addInvocation(owner string, change func(*call.Invocation)) {
	f.t.Helper()
	op := f.lock(owner)
	defer op.end()
	earlier, r := op.entry.LastInvocation(), op.entry.Rec.Clone()
	change(&earlier)
	r.Invocations = slices.Insert(r.Invocations, 0, earlier)
	if err := (world{op}).Write(r); err != nil {
		f.t.Fatal(err)
	}
	s := op.entry.Status
	s.Rec = &r
	world{op}.Publish(s)
}

// freeProcesses returns how many more plugin processes may run.
func (f *fixture) freeProcesses() int {
	n, processes := 0, f.pools[client.DefaultPool].processes[ofRuntime][0]
	for processes.TryAcquire(1) {
		n++
	}
	processes.Release(int64(n))
	return n
}

// openGate lets one ADD pass the gate.
func (f *fixture) openGate() {
	f.node.addGate <- struct{}{}
	synctest.Wait()
}

// openAll lets each ADD pass from now on.
func (f *fixture) openAll() {
	if f.node.addGate != nil {
		close(f.node.addGate)
		f.node.with(func(n *fakeNode) { n.addGate = nil })
	}
}

// steps returns the journal writes and plugin calls since the last time, without container IDs.
func (f *fixture) steps() string {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	var short []string
	for _, step := range f.node.steps {
		word, rest, _ := strings.Cut(step, " ")
		switch {
		case word == "write":
			word += " " + rest
		case strings.Contains(rest, "["):
			word += rest[strings.Index(rest, "["):]
		}
		short = append(short, word)
	}
	f.node.steps, f.past = nil, append(f.past, short...)
	return strings.Join(short, ", ")
}

// wantError fails unless err is an *attachment.Error of a kind whose text has the words.
func (f *fixture) wantError(err error, kind attachment.Kind, words ...string) {
	f.t.Helper()
	e, ok := errors.AsType[*attachment.Error](err)
	if !ok || e.Kind != kind {
		f.t.Fatalf("got %v; want an error of kind %q", err, kind)
	}
	for _, w := range words {
		if w == "retry-later" {
			if e.RetryAfter <= 0 {
				f.t.Errorf("%v is not to be repeated later", err)
			}
		} else if !strings.Contains(err.Error(), w) {
			f.t.Errorf("error %q lacks %q", err, w)
		}
	}
}

// wantStoreAgrees fails unless the plugin's store has the addresses of each held attachment.
func (f *fixture) wantStoreAgrees() {
	f.t.Helper()
	all := f.List()
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	for _, a := range all {
		stored := slices.SortedFunc(slices.Values(f.node.store[a.IDInUse()]), netip.Addr.Compare)
		if a.State == attachment.Held && !slices.Equal(stored, slices.SortedFunc(slices.Values(a.Addrs()), netip.Addr.Compare)) {
			f.t.Errorf("%s holds %v, and the plugin's store has %v for its ID", a.Owner, a.Addrs(), stored)
		}
	}
}

// warm returns the container IDs of the leases that no container has.
func (f *fixture) warm() []string {
	var ids []string
	for _, a := range f.List() {
		if attachment.IsWarm(a.Owner) && a.State == attachment.Held {
			ids = append(ids, a.IDInUse())
		}
	}
	slices.Sort(ids)
	return ids
}

// canRequest reports whether an ADD with the invocation can request all the addresses.
func canRequest(inv call.Invocation, ips []netip.Addr) bool {
	_, err := inv.Convention(len(ips))
	return err == nil && len(ips) > 0
}

// fakeObserver records events and waits, and ends the test if the engine is busy without a pause.
type fakeObserver struct {
	mu            sync.Mutex
	events, waits []string
	at            time.Time
	locks         int
}

func (o *fakeObserver) Happened(e Event) {
	if e.Kind != Done {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprintf("%s %s %s %v", e.Action, e.Outcome, e.Pool, e.Families))
}

func (o *fakeObserver) QueueWait(w Queue, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits = append(o.waits, fmt.Sprintf("%s %s", w, d))
	if now := time.Now(); !now.Equal(o.at) {
		o.at, o.locks = now, 0
	}
	if o.locks++; o.locks > 50_000 {
		panic("entries are worked on without a pause")
	}
}
