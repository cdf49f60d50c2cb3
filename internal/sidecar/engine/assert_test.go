package engine

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

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

// wantError fails unless err is an *protocol.Error of a kind whose text has the words.
func (f *fixture) wantError(err error, kind protocol.Kind, words ...string) {
	f.t.Helper()
	var e *protocol.Error
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
	if a := f.get(owner); a.State != record.Held || !a.Holds(addr(ip)) {
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
		if stored := f.node.store[lastID(a.Record)]; a.State == record.Held && !sameAddresses(resultOf(stored).Addresses, a.Result.Addresses) {
			f.t.Errorf("%s holds %v, and the plugin's store has %v for its ID", a.Owner, a.Addrs(), stored)
		}
	}
}

func (f *fixture) wantCounters(want Counters) {
	f.t.Helper()
	if got := f.Counters(); got != want {
		f.t.Errorf("counters %+v; want %+v", got, want)
	}
}

// wantGeneration fails unless the owner's last ADD had a container ID of this generation.
func (f *fixture) wantGeneration(owner string, generation int) {
	f.t.Helper()
	a := f.get(owner)
	if want := containerid.Generation(a.ContainerID, generation); lastID(a.Record) != want {
		f.t.Errorf("%s holds under %s; want %s", owner, lastID(a.Record), want)
	}
}

// lastInvocationOf returns the invocation of a record's last ADD.
func lastInvocationOf(r record.Record) call.Invocation {
	if len(r.Invocations) == 0 {
		return call.Invocation{}
	}
	return r.Invocations[len(r.Invocations)-1]
}

// lastID returns the container ID of a record's last ADD.
func lastID(r record.Record) string { return lastInvocationOf(r).ContainerID }

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
