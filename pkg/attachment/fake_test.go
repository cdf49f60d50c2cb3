package attachment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/ownermatch"
)

// fakeNode is what survives a crash: the disk and the plugin's store.
type fakeNode struct {
	mu   sync.Mutex
	disk map[string]record.Record
	// shared are the records that a journal would share with the engine, with what
	// they were when they were written or loaded.
	shared []shared
	// store is what the plugin holds, by container ID.
	store map[string][]netip.Addr
	// calls are the plugin's verbs with the container ID, in order.
	calls []string

	// expected is what the engine said would come next; standing is how many times it
	// has not taken that back yet.
	expected []expectation
	standing int

	profile  profile.Profile
	version  string
	network  map[string]string // pool -> network
	ipv6     bool              // the plugin has a v6 range as well
	size     int               // addresses per family
	noConfig error
	// unavailable is why the state folder cannot be used.
	unavailable error
	extra       string // an address that each ADD returns besides
	deaf        bool   // the plugin takes a request and gives what it likes

	// fault decides, before each step, what goes wrong; "" for nothing.
	fault func(step string) fault
	// dead: the process was killed; no step has an effect any more.
	dead bool
	// boots counts reboots: what a daemon on the node began in an earlier boot never lands.
	boots int
	// watch, if not nil, sees each call.
	watch func(verb string, c call.Call)
	// gate, if not nil, is received from before each ADD.
	gate chan struct{}
	// blind: the plugin's store cannot be looked up.
	blind bool
}

// expectation is what was expected, and how many calls and writes came before.
type expectation struct {
	after int
	verbs []string
}

// fault is what goes wrong at one step.
type fault string

const (
	none       fault = ""
	refused    fault = "refused"     // the plugin says no, nothing changes
	notStarted fault = "not started" // the plugin did not run
	hungBefore fault = "hung before" // timed out before it did anything
	hungAfter  fault = "hung after"  // timed out after its work was done
	errorAfter fault = "error after" // says error after its work was done
	queued     fault = "queued"      // a DEL that succeeds, and is carried out 10 h later
	hungLate   fault = "hung late"   // timed out, and a server does its work 100 s later
	diskBefore fault = "disk before" // the write failed and left the old state
	diskAfter  fault = "disk after"  // the write is said to have failed, but is there
	dieBefore  fault = "die before"  // killed before the step
	dieAfter   fault = "die after"   // killed after the step
)

func hostLocal() profile.Profile { return known("host-local") }

func known(plugin string) profile.Profile {
	set, err := profile.Load()
	if err != nil {
		panic(err)
	}
	return set.For(plugin)
}

func newWorld() *fakeNode {
	return &fakeNode{
		disk: map[string]record.Record{}, store: map[string][]netip.Addr{},
		profile: hostLocal(), version: "1.1.0", network: map[string]string{defaults.Pool: "net"}, size: 200, blind: true,
	}
}

var errDead = errors.New("the process is dead")

// at applies the faults that are the same for every step: whether the step
// has an effect, and what fault is left for it to answer with.
func (w *fakeNode) at(step string) (f fault, effect bool) {
	if w.dead {
		return dieBefore, false
	}
	if w.fault != nil {
		f = w.fault(step)
	}
	switch f {
	case dieBefore:
		w.dead = true
		return f, false
	case dieAfter:
		w.dead = true
		return f, true
	case refused, notStarted, hungBefore, hungLate, diskBefore:
		return f, false
	}
	return f, true
}

// shared is a record that nobody may change any more, and its JSON.
type shared struct {
	record record.Record
	was    string
}

func share(r record.Record) shared { return shared{r, jsonOf(r)} }

// unchanged fails where the engine has changed in place what it shares with the journal.
func (w *fakeNode) unchanged(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.shared {
		if is := jsonOf(s.record); is != s.was {
			t.Errorf("a record that the journal shares was\n%s\nand was changed in place to\n%s", s.was, is)
		}
	}
}

func (w *fakeNode) Write(r record.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := r.Validate(); err != nil {
		return err
	}
	w.shared = append(w.shared, share(r))
	w.calls = append(w.calls, "write "+string(r.State))
	f, effect := w.at("write " + string(r.State))
	if effect {
		w.disk[r.ContainerID] = throughJSON(r)
	}
	return diskError(f)
}

func (w *fakeNode) Remove(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "remove")
	f, effect := w.at("remove")
	if effect {
		delete(w.disk, id)
	}
	return diskError(f)
}

// Available fails only where a test says so: the fake disk fails at writes.
func (w *fakeNode) Available() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unavailable
}

func diskError(f fault) error {
	switch f {
	case none:
		return nil
	case dieBefore, dieAfter:
		return errDead
	}
	return fmt.Errorf("no space left on device (%s)", f)
}

// throughJSON is what a record is after it was on disk.
func throughJSON(r record.Record) record.Record {
	var out record.Record
	if err := json.Unmarshal([]byte(jsonOf(r)), &out); err != nil {
		panic(err)
	}
	return out
}

func jsonOf(r record.Record) string {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func (w *fakeNode) Network(pool string) (call.Network, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return call.Network{Name: w.network[pool]}, w.noConfig
}

func (w *fakeNode) NewInvocation(_ context.Context, n call.Network, containerID, _ string) (call.Invocation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return call.Invocation{
		ContainerID: containerID, Network: n.Name, CNIVersion: w.version,
		Config: json.RawMessage(`{}`), Plugin: w.profile.Type, Profile: w.profile,
	}, nil
}

func (w *fakeNode) Add(_ context.Context, c call.Call) (call.Result, error) {
	if w.gate != nil {
		<-w.gate
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen("ADD", c)
	w.calls = append(w.calls, fmt.Sprint("ADD ", c.ContainerID, requested(c)))
	f, effect := w.at("ADD")
	if f == hungLate {
		go w.land(c, lateCall, w.boots, func() { _, _ = w.allocate(c) }) // the client no longer reads a refusal
	}
	var got []netip.Addr
	if effect {
		var err error
		if got, err = w.allocate(c); err != nil {
			return call.Result{}, refusal("ADD", c, 999, err.Error())
		}
	}
	if err := pluginError("ADD", c, f); err != nil {
		return call.Result{}, err
	}
	res := resultOf(got)
	res.InStore = !w.noLookup(c.Invocation)
	return res, nil
}

func resultOf(ips []netip.Addr) call.Result {
	res := call.Result{Raw: json.RawMessage(`{"cniVersion":"1.1.0"}`)}
	for _, ip := range ips {
		bits := 24
		if ip.Is6() {
			bits = 64
		}
		res.Addresses = append(res.Addresses, call.Address{Prefix: netip.PrefixFrom(ip, bits)})
	}
	return res
}

// note puts what a client did among the calls.
func (w *fakeNode) note(a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, "-- "+fmt.Sprintln(a...))
}

func requested(c call.Call) []netip.Addr {
	var ips []netip.Addr
	for _, p := range c.Requested {
		ips = append(ips, p.Addr())
	}
	return ips
}

func (w *fakeNode) seen(verb string, c call.Call) {
	if w.watch != nil {
		w.watch(verb, c)
	}
}

// lateCall is how long after its process a call may act, and lateQueue how long a DEL
// stays in a queue.
const (
	lateCall  = 100 * time.Second
	lateQueue = 10 * time.Hour
)

// land does what a call began, after its process has ended. Only a store off the node
// still does it after a reboot.
func (w *fakeNode) land(c call.Call, after time.Duration, boot int, do func()) {
	time.Sleep(after)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boots == boot || !c.Invocation.Profile.OnNode() {
		w.calls = append(w.calls, "late: "+c.ContainerID)
		do()
	}
}

// allocate is the plugin's own work.
func (w *fakeNode) allocate(c call.Call) ([]netip.Addr, error) {
	if held, ok := w.store[c.ContainerID]; ok {
		switch w.profile.RepeatedAdd {
		case profile.RepeatedAddRefused:
			return nil, errors.New("duplicate allocation is not allowed")
		case profile.RepeatedAddSameAnswer:
			return held, nil
		}
	}
	families := []record.Family{record.IPv4}
	if w.ipv6 {
		families = append(families, record.IPv6)
	}
	var got []netip.Addr
	for _, f := range families {
		asked := requested(c)
		if w.deaf {
			asked = nil
		}
		ip, err := w.pick(f, asked)
		if err != nil {
			return nil, err
		}
		got = append(got, ip)
	}
	if w.extra != "" {
		got = append(got, netip.MustParseAddr(w.extra))
	}
	w.store[c.ContainerID] = append(w.store[c.ContainerID], got...)
	return got, nil
}

func (w *fakeNode) pick(f record.Family, requested []netip.Addr) (netip.Addr, error) {
	taken := func(ip netip.Addr) bool {
		for _, held := range w.store {
			if slices.Contains(held, ip) {
				return true
			}
		}
		return false
	}
	if len(w.profile.Requests) > 0 {
		for _, ip := range requested {
			if record.FamilyOf(ip) != f {
				continue
			}
			if taken(ip) {
				return netip.Addr{}, fmt.Errorf("requested address %s is not available", ip)
			}
			return ip, nil
		}
	}
	for i := 1; i <= w.size; i++ {
		ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		if f == record.IPv6 {
			ip = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i)})
		}
		if !taken(ip) {
			return ip, nil
		}
	}
	return netip.Addr{}, errors.New("no addresses available in range set")
}

func (w *fakeNode) Del(_ context.Context, c call.Call) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen("DEL", c)
	w.calls = append(w.calls, "DEL "+c.ContainerID)
	f, effect := w.at("DEL")
	release := func() { delete(w.store, c.ContainerID) }
	switch {
	case f == hungLate:
		go w.land(c, lateCall, w.boots, release)
	case f == queued:
		go w.land(c, lateQueue, w.boots, release)
		return nil
	case effect:
		release()
	}
	return pluginError("DEL", c, f)
}

// Holds and Lookup read the store where the profile has a lookup.
func (w *fakeNode) Holds(c call.Invocation, ips []netip.Addr) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noLookup(c) {
		return false, errNoLookup
	}
	for _, ip := range ips {
		if !slices.Contains(w.store[c.ContainerID], ip) {
			return false, nil
		}
	}
	return true, nil
}

func (p fakePlugin) Lookup(_ context.Context, c call.Invocation) (call.Result, error) {
	w := p.fakeNode
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noLookup(c) {
		return call.Result{}, errNoLookup
	}
	w.calls = append(w.calls, "lookup")
	return resultOf(w.store[c.ContainerID]), nil
}

// fakePlugin is the plugin of a world. A scene has Lookup of the engine beside it.
type fakePlugin struct{ *fakeNode }

var errNoLookup = errors.New("no lookup")

func (w *fakeNode) noLookup(c call.Invocation) bool {
	return c.Profile.Lookup == profile.LookupNone || w.blind || w.dead
}

func (w *fakeNode) Check(_ context.Context, c call.Call) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen("CHECK", c)
	w.calls = append(w.calls, "CHECK "+c.ContainerID)
	f, effect := w.at("CHECK")
	if err := pluginError("CHECK", c, f); err != nil {
		return err
	}
	if _, ok := w.store[c.ContainerID]; effect && !ok {
		return refusal("CHECK", c, 999, "Failed to find address added by container")
	}
	return nil
}

// Prestart notes the calls that are expected, and how many calls and writes there were
// before. It has no effect.
func (w *fakeNode) Prestart(calls ...call.Upcoming) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var verbs []string
	for _, c := range calls {
		verbs = append(verbs, c.Verb+" "+c.Call.ContainerID)
	}
	w.expected = append(w.expected, expectation{after: len(w.calls), verbs: verbs})
	w.standing++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.standing--
	}
}

func refusal(verb string, c call.Call, code uint, msg string) error {
	return &call.Error{Verb: verb, Plugin: c.Invocation.Plugin, ContainerID: c.ContainerID, Outcome: call.Refused, Code: code, Msg: msg}
}

func pluginError(verb string, c call.Call, f fault) error {
	e := &call.Error{Verb: verb, Plugin: c.Invocation.Plugin, ContainerID: c.ContainerID, Outcome: call.Unknown, Err: errors.New(string(f))}
	switch f {
	case none:
		return nil
	case refused, errorAfter:
		return refusal(verb, c, 7, string(f))
	case notStarted:
		e.Outcome = call.NotStarted
	}
	return e
}

// options are the defaults of the tests.
func options() Options {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	owners, err := ownermatch.Parse([]string{"*"})
	if err != nil {
		panic(err)
	}
	return Options{
		Node: "node1", BootID: "boot1", MachineID: "machine1", Pools: []string{defaults.Pool},
		EnableIPv4: true, EnableIPv6: true, Owners: owners,
		Expiration: 10 * time.Minute, Budget: 80 * time.Second,
		MaxProcesses: 4, MaxQueued: 100, Log: quiet,
	}
}

// start starts an engine on what the world has on disk, and stops it with the test.
func (w *fakeNode) start(t *testing.T, change ...func(*Options)) *Engine {
	t.Helper()
	o := options()
	for _, c := range change {
		c(&o)
	}
	w.mu.Lock()
	w.dead = false
	var records []record.Record
	for _, r := range w.disk {
		records = append(records, r)
		w.shared = append(w.shared, share(r))
	}
	w.mu.Unlock()
	slices.SortFunc(records, func(a, b record.Record) int { return a.Created.Compare(b.Created) })
	e := New(o, w, fakePlugin{w})
	e.Start(records)
	t.Cleanup(func() {
		stop(t, e)
		w.unchanged(t)
	})
	return e
}

func stop(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// kill stops an engine as a SIGKILL would: nothing it does has an effect any more.
func (w *fakeNode) kill(t *testing.T, e *Engine) {
	t.Helper()
	w.mu.Lock()
	w.dead = true
	w.mu.Unlock()
	stop(t, e)
}

// on makes a fault happen the n-th time a step is reached, counted from 1.
func on(step string, n int, f fault) func(string) fault {
	return func(s string) fault {
		if s != step {
			return none
		}
		n--
		if n == 0 {
			return f
		}
		return none
	}
}

// always makes a fault happen each time a step is reached.
func always(step string, f fault) func(string) fault {
	return func(s string) fault {
		if s == step {
			return f
		}
		return none
	}
}
