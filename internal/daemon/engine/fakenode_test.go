package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// fakeNode is what survives a crash: the journal's disk and the plugin's store. It implements
// Journal (in this file) and Plugin (fakeplugin_test.go).
type fakeNode struct {
	mu sync.Mutex
	// records is the disk, by container ID.
	records map[string]attachment.Record
	// store is what the plugin holds, by container ID.
	store map[string][]netip.Addr
	// queued are the container IDs on which a DEL may act at any time, because the profile has DelQueued.
	queued map[string]bool
	// steps are the journal writes and plugin calls with their container ID, in order.
	steps []string
	// snapshots are the records that a journal would share with the engine.
	snapshots []snapshot

	profile    profile.Profile
	cniVersion string
	networks   map[string]string // by pool
	ipv6       bool              // the plugin has an IPv6 range as well
	twoSets    bool              // and before the IPv4 range a set of others, of which each ADD returns one
	rangeSize  int               // addresses per family
	outside    []netip.Prefix    // not in the ranges of the configuration
	networkErr error             // why Network fails
	blueErr    error             // why it fails for the pool blue
	bare       bool              // no network serves containers
	neverErr   error             // networkErr as long as it was never nil in this run
	pluginErr  error             // why NewInvocation fails
	configErr  error             // why CheckConfig fails
	// ignoresRequests: an ADD accepts requested addresses and returns any.
	ignoresRequests bool
	// needsPod: ADD and DEL are refused unless the profile names a pod.
	needsPod bool
	// strictDel: a DEL is refused if nothing is held.
	strictDel bool
	// afterAdd is called when an ADD has allocated, before it ends.
	afterAdd func(c call.Call)
	// continues: an ADD continues after last, the number of the address that the last one returned.
	continues bool
	last      int
	// storeHidden: Holds and Lookup fail.
	storeHidden bool
	// lookupErr is why Lookup fails although it finds addresses.
	lookupErr error
	// availableErr is why the state directory cannot be used.
	availableErr error

	// fault returns what goes wrong at a step; nil for nothing.
	fault func(step string) fault
	// killed: the process is dead, so no step has an effect.
	killed bool
	// reboots counts reboots: late effects of calls on the node do not survive one.
	reboots int
	// onCall, if not nil, is called with each plugin call.
	onCall func(ctx context.Context, verb string, c call.Call)
	// callTime is how long a call takes.
	callTime time.Duration
	// addGate, if not nil, is received from before each ADD.
	addGate chan struct{}
}

func newFakeNode() *fakeNode {
	return &fakeNode{
		records: map[string]attachment.Record{}, store: map[string][]netip.Addr{}, queued: map[string]bool{},
		profile: hostLocal(), cniVersion: "1.1.0", networks: map[string]string{client.DefaultPool: "net"},
		ipv6: true, rangeSize: 200, storeHidden: true,
	}
}

// defaultOptions are the options of an engine unless a test changes them.
func defaultOptions() Options {
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	owners, err := ownermatch.Parse([]string{"*"})
	if err != nil {
		panic(err)
	}
	return Options{
		Options: attachment.Options{Node: "node1", BootID: "boot1", EnableIPv4: true, EnableIPv6: true, Expiration: 10 * time.Minute},
		Pools:   []string{client.DefaultPool}, DefaultPool: client.DefaultPool,
		Owners: owners, Budget: 80 * time.Second,
		MaxProcesses: 4, MaxQueued: 100, MaxAttachments: 100_000, Log: silent, Observer: &fakeObserver{},
	}
}

// start starts an engine on the records of the node and stops it at the end of the test.
func (n *fakeNode) start(t *testing.T, o Options) *Engine {
	t.Helper()
	n.mu.Lock()
	n.killed, n.neverErr = false, n.networkErr
	byID := func(a, b attachment.Record) int { return strings.Compare(a.ContainerID, b.ContainerID) }
	records := slices.SortedFunc(maps.Values(n.records), byID)
	for _, r := range records {
		n.snapshots = append(n.snapshots, newSnapshot(r))
	}
	n.mu.Unlock()
	e := New(o, n, n)
	e.Start(records)
	e.Reconcile()
	t.Cleanup(func() {
		stop(t, e)
		n.wantSnapshotsUnchanged(t)
	})
	return e
}

func stop(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// kill stops an engine as SIGKILL does: no further step of it has an effect.
func (n *fakeNode) kill(t *testing.T, e *Engine) {
	t.Helper()
	n.with(func(n *fakeNode) { n.killed = true })
	stop(t, e)
}

// Write implements Journal.
func (n *fakeNode) Write(r attachment.Record, instead ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := r.Validate(); err != nil {
		return err
	}
	n.snapshots = append(n.snapshots, newSnapshot(r))
	step := "write " + string(r.State)
	n.steps = append(n.steps, step)
	injected, effect := n.faultAt(step)
	if effect {
		n.forget(r.Pool, instead)
		n.records[r.ContainerID] = throughJSON(r)
	}
	return journalError(injected)
}

// Remove implements Journal.
func (n *fakeNode) Remove(pool string, owners ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.steps = append(n.steps, "remove")
	injected, effect := n.faultAt("remove")
	if effect {
		n.forget(pool, owners)
	}
	return journalError(injected)
}

func (n *fakeNode) forget(pool string, owners []string) {
	maps.DeleteFunc(n.records, func(_ string, r attachment.Record) bool { return r.Pool == pool && slices.Contains(owners, r.Owner) })
}

// Available implements Journal.
func (n *fakeNode) Available() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.availableErr
}

// with changes the locked node.
func (n *fakeNode) with(do func(n *fakeNode)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do(n)
}

// logStep adds an annotation to the steps.
func (n *fakeNode) logStep(a ...any) {
	n.with(func(n *fakeNode) { n.steps = append(n.steps, "-- "+fmt.Sprintln(a...)) })
}

// shiftTimes adds d to the times of every record, as if a clock that was ahead had written them.
func (n *fakeNode) shiftTimes(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	later := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
	for id, r := range n.records {
		r = r.Clone()
		later(&r.Changed)
		later(&r.ReleaseAt)
		later(&r.LateDel.Until)
		if r.Expiration != nil {
			later(&r.Expiration.Deadline)
		}
		for i := range r.Invocations {
			later(&r.Invocations[i].AddActsUntil)
		}
		n.records[id] = r
	}
}

// snapshot is a record that must not be modified any more, and its JSON.
type snapshot struct {
	record attachment.Record
	json   string
}

func newSnapshot(r attachment.Record) snapshot { return snapshot{r, toJSON(r)} }

// wantSnapshotsUnchanged fails if the engine has modified a record that it shares.
func (n *fakeNode) wantSnapshotsUnchanged(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.snapshots {
		if now := toJSON(s.record); now != s.json {
			t.Errorf("a shared record was\n%s\nand was modified to\n%s", s.json, now)
		}
	}
}

// throughJSON returns a record as it is after it was on disk.
func throughJSON(r attachment.Record) (out attachment.Record) {
	if err := json.Unmarshal([]byte(toJSON(r)), &out); err != nil {
		panic(err)
	}
	return out
}

func toJSON(r attachment.Record) string {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(data)
}

var errKilled = errors.New("the process was killed")

// fault is what goes wrong at a step: a plugin call or a journal write.
type fault string

const (
	noFault fault = ""
	// The plugin returns an error: without an effect, or after its work.
	refused    fault = "refused"
	errorAfter fault = "error after"
	notStarted fault = "not started" // the plugin did not run
	// The plugin's server does not respond, or the plugin reports that it holds nothing: both with the
	// one code of CNI's library.
	outage   fault = "connection refused"
	saysLost fault = "Failed to find address"
	// The call timed out: before it did anything, after its work, or with the work done by
	// a server lateCall later.
	timeoutBefore fault = "timeout before"
	timeoutAfter  fault = "timeout after"
	timeoutLate   fault = "timeout late"
	// A DEL succeeds, and is carried out queuedDel later.
	delQueued fault = "DEL queued"
	// A write fails and leaves the old state, or reports an error although it is durable.
	writeFailed  fault = "write failed"
	writeUnknown fault = "write reported as failed"
	// The process is killed.
	killBefore fault = "killed before"
	killAfter  fault = "killed after"
)

const (
	lateCall  = 100 * time.Second
	queuedDel = 10 * time.Hour
)

// nth injects a fault at the n-th occurrence of a step, counted from 1.
func nth(n int, step string, injected fault) func(string) fault {
	return func(s string) fault {
		if s != step {
			return noFault
		}
		n--
		if n == 0 {
			return injected
		}
		return noFault
	}
}

// faultAt returns the fault at a step, and whether the step has an effect.
func (n *fakeNode) faultAt(step string) (injected fault, effect bool) {
	if n.killed {
		return killBefore, false
	}
	if n.fault != nil {
		injected = n.fault(step)
	}
	switch injected {
	case killBefore:
		n.killed = true
		return injected, false
	case killAfter:
		n.killed = true
		return injected, true
	case refused, outage, saysLost, notStarted, timeoutBefore, timeoutLate, writeFailed:
		return injected, false
	}
	return injected, true
}

// actLate runs what a call began some time after its process has ended. Only a plugin with a
// store off the node still does that after a reboot. n.mu is held by the caller.
func (n *fakeNode) actLate(c call.Call, after time.Duration, act func()) {
	began := n.reboots
	go func() {
		time.Sleep(after)
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.reboots == began || !c.Invocation.Profile.OnNode() {
			n.steps = append(n.steps, "late: "+c.ContainerID)
			act()
		}
	}()
}

func journalError(injected fault) error {
	switch injected {
	case noFault:
		return nil
	case killBefore, killAfter:
		return errKilled
	}
	return fmt.Errorf("no space left on device (%s)", injected)
}

func pluginError(verb string, c call.Call, injected fault) error {
	e := &call.Error{Verb: verb, Plugin: c.Invocation.Plugin, ContainerID: c.ContainerID, Outcome: call.Unknown, Err: errors.New(string(injected))}
	switch injected {
	case noFault, delQueued:
		return nil
	case refused, errorAfter:
		return refusal(verb, c, 7, string(injected))
	case outage, saysLost:
		return refusal(verb, c, 999, string(injected))
	case notStarted:
		e.Outcome = call.NotStarted
	}
	return e
}

// refusal is the error of a plugin that returned a CNI error.
func refusal(verb string, c call.Call, code uint, msg string) error {
	return &call.Error{Verb: verb, Plugin: c.Invocation.Plugin, ContainerID: c.ContainerID, Outcome: call.Refused, Code: code, Msg: msg}
}
