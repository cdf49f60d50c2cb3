package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// run runs a subtest with a fixture in a synctest bubble, so that waits take no time.
func run(t *testing.T, name string, setups []setup, test func(f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(newFixture(t, setups...)) })
	})
}

func with(setups ...setup) []setup { return setups }

// fixture is an engine on a fake node.
type fixture struct {
	t *testing.T
	*Engine
	node     *fakeNode
	observer *fakeObserver
	log      *logrus.Logger
	logged   *logtest.Hook
}

// setup changes the fake node or the options before the engine starts; nil changes nothing.
type setup func(*fakeNode, *Options)

func newFixture(t *testing.T, setups ...setup) *fixture {
	t.Helper()
	f := &fixture{t: t, node: newFakeNode(), observer: &fakeObserver{}}
	f.log, f.logged = logtest.NewNullLogger()
	f.log.SetLevel(logrus.DebugLevel)
	f.start(setups...)
	return f
}

// start starts an engine with the default options and these setups.
func (f *fixture) start(setups ...setup) {
	f.t.Helper()
	o := defaultOptions()
	o.Observer, o.Log = f.observer, f.log
	for _, apply := range setups {
		if apply != nil {
			apply(f.node, &o)
		}
	}
	f.Engine = f.node.start(f.t, o)
}

// restart kills the engine, removes the fault, forgets the steps, and starts a new engine as
// start does. It returns when the reconciliation after the start is idle.
func (f *fixture) restart(setups ...setup) {
	f.t.Helper()
	f.node.kill(f.t, f.Engine)
	f.inject(nil)
	f.steps()
	f.start(setups...)
	synctest.Wait()
}

// routerID is the container ID of the owner router.
const routerID = "cilium-agent-router-d8c9d588a6714816"

func ipv4Only(n *fakeNode, _ *Options)      { n.ipv6 = false }
func storeReadable(n *fakeNode, _ *Options) { n.storeHidden = false }

// gatedAdd makes each ADD wait until the test sends to or closes addGate.
func gatedAdd(n *fakeNode, _ *Options) { n.addGate = make(chan struct{}) }

// withProfile sets the plugin's profile, with changes.
func withProfile(p profile.Profile, changes ...func(*profile.Profile)) setup {
	for _, change := range changes {
		change(&p)
	}
	return func(n *fakeNode, _ *Options) { n.profile = p }
}

// changedProfile makes the plugin a host-local with a changed profile.
func changedProfile(change func(*profile.Profile)) setup { return withProfile(hostLocal(), change) }

var hostLocalActsLate = changedProfile(func(p *profile.Profile) { p.AddOutlivesSeconds = 60 })

// unknownPlugin has one family, takes no requests for addresses, and may act late; checkedPlugin also
// notices a loss.
func unknownPlugin(n *fakeNode, _ *Options) { n.profile, n.ipv6 = pluginProfile("unknown"), false }
func checkedPlugin(n *fakeNode, _ *Options) { n.profile, n.ipv6 = checked(), false }

func verifyInterval(d time.Duration) setup {
	return func(_ *fakeNode, o *Options) { o.VerifyInterval = d }
}

func releaseDelay(d time.Duration) setup { return func(_ *fakeNode, o *Options) { o.ReleaseDelay = d } }

func maxProcesses(n int) setup { return func(_ *fakeNode, o *Options) { o.MaxProcesses = n } }

func maxQueued(n int) setup { return func(_ *fakeNode, o *Options) { o.MaxQueued = n } }

func rebooted(_ *fakeNode, o *Options)     { o.BootID = "boot2" }
func ipv6Disabled(_ *fakeNode, o *Options) { o.EnableIPv6 = false }
func retireOwners(_ *fakeNode, o *Options) { o.RetireOwners = true }

// onlyOwner makes --owners match one owner.
func onlyOwner(owner string) setup {
	return func(_ *fakeNode, o *Options) { o.Owners, _ = ownermatch.Parse([]string{owner}) }
}

// bluePool adds a pool "blue" with a separate network.
func bluePool(n *fakeNode, o *Options) {
	n.networks["blue"] = "blue-net"
	o.Pools = []string{client.DefaultPool, "blue"}
}

// addr parses an IP address.
func addr(ip string) netip.Addr { return netip.MustParseAddr(ip) }

// allocate allocates the addresses of an owner.
func (f *fixture) allocate(owner string) Attachment {
	f.t.Helper()
	return f.must(AllocateRequest{Owner: owner})
}

// given allocates the addresses of owners, and forgets the steps.
func (f *fixture) given(owners ...string) {
	f.t.Helper()
	for _, owner := range owners {
		f.allocate(owner)
	}
	f.steps()
}

func (f *fixture) allocateFamily(owner string, family attachment.Family) Attachment {
	f.t.Helper()
	return f.must(AllocateRequest{Owner: owner, Family: family})
}

func (f *fixture) allocateExpiring(owner string) Attachment {
	f.t.Helper()
	return f.must(AllocateRequest{Owner: owner, Expire: true})
}

// tryAllocate returns the error of an allocation.
func (f *fixture) tryAllocate(owner string) error {
	return f.try(AllocateRequest{Owner: owner})
}

// request makes a request.
func (f *fixture) request(ctx context.Context, request any) (a Attachment, err error) {
	switch r := request.(type) {
	case AllocateRequest:
		a, err = f.Allocate(ctx, r)
	case RestoreRequest:
		a, err = f.Restore(ctx, r)
	case ReleaseRequest:
		a, err = f.Release(ctx, r)
	default:
		panic(fmt.Sprintf("no request: %T", r))
	}
	return a, err
}

// try makes a request, and returns its error.
func (f *fixture) try(request any) error {
	_, err := f.request(context.Background(), request)
	return err
}

// must makes a request that succeeds.
func (f *fixture) must(request any) Attachment {
	f.t.Helper()
	a, err := f.request(context.Background(), request)
	if err != nil {
		f.t.Fatalf("%+v: %v", request, err)
	}
	return a
}

// tryLeft makes a request whose client has left.
func (f *fixture) tryLeft(request any) error {
	ctx, leave := context.WithCancel(context.Background())
	leave()
	_, err := f.request(ctx, request)
	return err
}

// restoring is the request of an address by an owner that may know the one of the other family, too.
func restoring(owner, ip string, also ...string) RestoreRequest {
	r := RestoreRequest{Owner: owner, IP: addr(ip)}
	if len(also) > 0 {
		r.Also = addr(also[0])
	}
	return r
}

func (f *fixture) restore(owner, ip string, also ...string) {
	f.t.Helper()
	f.must(restoring(owner, ip, also...))
}

func (f *fixture) tryRestore(owner, ip string, also ...string) error {
	return f.try(restoring(owner, ip, also...))
}

func (f *fixture) release(ips ...string) {
	f.t.Helper()
	for _, ip := range ips {
		f.must(ReleaseRequest{IP: addr(ip)})
	}
}

func (f *fixture) tryRelease(ip string) error { return f.try(ReleaseRequest{IP: addr(ip)}) }

// releaseAll releases the addresses of an attachment.
func (f *fixture) releaseAll(a Attachment) {
	f.t.Helper()
	for _, ip := range a.Addrs() {
		f.release(ip.String())
	}
}

// releaseNow releases addresses without the release delay.
func (f *fixture) releaseNow(ips ...string) {
	f.t.Helper()
	for _, ip := range ips {
		f.must(ReleaseRequest{IP: addr(ip), SkipDelay: true})
	}
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

// sleep lets time pass and waits until the engine is idle.
func (f *fixture) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
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

// publish changes the state of an attachment.
func (op *operation) publish(change func(*attachment.Status)) {
	s := op.entry.Status
	change(&s)
	world{op}.Publish(s)
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
	f.node.steps = nil
	return strings.Join(short, ", ")
}

// inject sets the fault function; nil for no faults.
func (f *fixture) inject(at func(step string) fault) {
	f.node.with(func(n *fakeNode) { n.fault = at })
}

// onCall calls do with each plugin call from now on.
func (f *fixture) onCall(do func(verb string, c call.Call)) {
	f.node.with(func(n *fakeNode) { n.onCall = func(_ context.Context, verb string, c call.Call) { do(verb, c) } })
}

// clearStore removes everything from the plugin's store.
func (f *fixture) clearStore() { f.node.with(func(n *fakeNode) { clear(n.store) }) }

// setStored makes the plugin's store hold exactly these addresses for a container ID.
func (f *fixture) setStored(containerID string, ips ...string) {
	f.node.with(func(n *fakeNode) {
		delete(n.store, containerID)
		for _, ip := range ips {
			n.store[containerID] = append(n.store[containerID], addr(ip))
		}
	})
}

// wantSteps compares the journal writes and plugin calls since the last time.
func (f *fixture) wantSteps(want string) {
	f.t.Helper()
	if got := f.steps(); got != want {
		f.t.Errorf("steps:\n got %s\nwant %s", got, want)
	}
}

// wantStepsPrefix is wantSteps for the first steps.
func (f *fixture) wantStepsPrefix(want string) {
	f.t.Helper()
	if got := f.steps(); !strings.HasPrefix(got, want) {
		f.t.Errorf("steps:\n got %s\nwant %s …", got, want)
	}
}

// wantError fails unless err is an *attachment.Error of a kind whose text has the words.
func (f *fixture) wantError(err error, kind attachment.Kind, words ...string) {
	f.t.Helper()
	var e *attachment.Error
	if !errors.As(err, &e) || e.Kind != kind {
		f.t.Fatalf("got %v; want an error of kind %q", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			f.t.Errorf("error %q lacks %q", err, w)
		}
	}
}

// wantHeld fails unless the owner holds the address.
func (f *fixture) wantHeld(owner, ip string) {
	f.t.Helper()
	if a := f.get(owner); a.State != attachment.Held || !a.Holds(addr(ip)) {
		f.t.Errorf("%s does not hold %s: %+v", owner, ip, a.Record)
	}
}

// wantStored fails unless the plugin's store holds addresses for this many container IDs.
func (f *fixture) wantStored(ids int) {
	f.t.Helper()
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if len(f.node.store) != ids {
		f.t.Errorf("the plugin's store has %v; want %d container IDs", f.node.store, ids)
	}
}

// wantNone fails if there is an attachment, or an address in the plugin's store.
func (f *fixture) wantNone() {
	f.t.Helper()
	f.wantNoAttachment()
	f.wantStored(0)
}

// wantGone is wantNone, and there is no record either.
func (f *fixture) wantGone() {
	f.t.Helper()
	f.wantNone()
	f.wantRecords(0)
}

func (f *fixture) wantNoAttachment() { f.t.Helper(); f.wantOwners() }

// wantOwners compares the owners of all attachments, sorted.
func (f *fixture) wantOwners(want ...string) {
	f.t.Helper()
	var got []string
	for a := range f.All() {
		got = append(got, a.Owner)
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("attachments of %q; want of %q", got, want)
	}
}

// wantRecords fails unless the journal has this many records, tombstones included.
func (f *fixture) wantRecords(n int) {
	f.t.Helper()
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if len(f.node.records) != n {
		f.t.Errorf("the journal has %v; want %d records", f.node.records, n)
	}
}

// wantStoreAgrees fails unless the plugin's store has the addresses of each held attachment.
func (f *fixture) wantStoreAgrees() {
	f.t.Helper()
	all := f.List()
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	for _, a := range all {
		if stored := f.node.store[a.IDInUse()]; a.State == attachment.Held && !sameAddresses(resultOf(stored).Addresses, a.Result.Addresses) {
			f.t.Errorf("%s holds %v, and the plugin's store has %v for its ID", a.Owner, a.Addrs(), stored)
		}
	}
}

// counts are the numbers of the events that are counted for an operator; zero by default.
type counts map[attachment.EventKind]uint64

func (f *fixture) wantCounts(want counts) {
	f.t.Helper()
	for _, k := range []attachment.EventKind{attachment.EventLost, attachment.EventReacquired, attachment.EventDuplicate, attachment.EventExpired, attachment.EventHandedOver} {
		if got := f.Count(k); got != want[k] {
			f.t.Errorf("%d times %q; want %d", got, k, want[k])
		}
	}
}

// wantGeneration fails unless the owner's last ADD had a container ID of this generation.
func (f *fixture) wantGeneration(owner string, generation int) {
	f.t.Helper()
	a := f.get(owner)
	if want := containerid.Generation(a.ContainerID, generation); a.IDInUse() != want {
		f.t.Errorf("%s holds under %s; want %s", owner, a.IDInUse(), want)
	}
}

// sameAddresses compares two results regardless of order.
func sameAddresses(a, b []call.Address) bool {
	x, y := call.Addrs(a), call.Addrs(b)
	slices.SortFunc(x, netip.Addr.Compare)
	slices.SortFunc(y, netip.Addr.Compare)
	return slices.Equal(x, y)
}

// canRequest reports whether an ADD with the invocation can request all the addresses.
func canRequest(inv call.Invocation, ips []netip.Addr) bool {
	_, err := inv.Convention(len(ips))
	return err == nil && len(ips) > 0
}
