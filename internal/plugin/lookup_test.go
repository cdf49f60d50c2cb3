package plugin

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// wantLookup fails the test if a lookup fails or does not return the addresses.
func (f *fixture) wantLookup(inv call.Invocation, want string) call.Result {
	f.t.Helper()
	got, err := f.runner.Lookup(f.t.Context(), inv)
	if text := ipsOf(got); err != nil || text != want {
		f.t.Errorf("Lookup of %s: got %q, %v; want %q", inv.ContainerID, text, err, want)
	}
	return got
}

// wantHolds fails the test if Holds fails or returns something else.
func (f *fixture) wantHolds(inv call.Invocation, ips []netip.Addr, want bool) {
	f.t.Helper()
	if held, err := f.runner.Holds(inv, ips); held != want || err != nil {
		f.t.Errorf("Holds of %s: got %v, %v; want %v", inv.ContainerID, held, err, want)
	}
}

// wantNoLookup fails the test if Holds and Lookup do not both fail with the text.
func (f *fixture) wantNoLookup(inv call.Invocation, ips []netip.Addr, text string) {
	f.t.Helper()
	held, err := f.runner.Holds(inv, ips)
	wantText(f.t, err, "lookup of container ID", text)
	if held {
		f.t.Errorf("%v are held", ips)
	}
	_, err = f.runner.Lookup(f.t.Context(), inv)
	wantText(f.t, err, "lookup of container ID", text)
}

// A file that is not regular neither blocks a lookup nor is followed.
func TestLookupIrregularFile(t *testing.T) {
	f := newReal(t, dualStack)
	f.addInStore(f.call("id"))
	f.writeLease("elsewhere", "mine\r\neth0")
	at := func(name string) string { return filepath.Join(f.leaseDir(), name) }
	check.Must(t, errors.Join(unix.Mkfifo(at("10.1.0.11"), 0o600), os.Symlink("elsewhere", at("10.1.0.12")), os.Mkdir(at("10.1.0.13"), 0o700)))
	for _, ip := range addrs("10.1.0.11", "10.1.0.12", "10.1.0.13") {
		f.wantNoLookup(f.invocation("mine"), []netip.Addr{ip}, "not a lease file")
	}
}

func TestLookupForbiddenDir(t *testing.T) {
	f := newReal(t, dualStack)
	got := f.addInStore(f.call("id"))
	inv := f.invocation("id")
	check.Must(t, os.Chmod(f.leaseDir(), 0))
	if os.Geteuid() == 0 { // root may read everything, unless its file system user ID is another's
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		own, err := unix.SetfsuidRetUid(65534)
		check.Must(t, err)
		defer unix.Setfsuid(own) //nolint:errcheck // as above
	}
	f.wantNoLookup(inv, call.Addrs(got.Addresses), "permission denied")
}

func TestPluginWithoutLookup(t *testing.T) {
	f := newFake(t)
	target := f.call("id")
	got := f.add(target)
	if got.InStore {
		t.Error("the result was found in a store")
	}
	f.wantNoLookup(target.Invocation, call.Addrs(got.Addresses), "has no lookup")
	if got := f.runner.Verification(target.Invocation); got != (Verification{By: "check"}) {
		t.Errorf("got %+v", got)
	}
}

// Only an ADD proves where a plugin keeps its addresses: before one, a lookup that finds nothing may
// have read another directory than the plugin's.
func TestLookupBeforeAdd(t *testing.T) {
	f := newReal(t, dualStack)
	want := f.addInStore(f.call("id"))
	f.start() // again, so no ADD is known
	f.wantLookup(f.invocation("id"), ipsOf(want))
	_, err := f.runner.Lookup(t.Context(), f.invocation("other"))
	wantText(t, err, "has proven")
	unchecked := f.invocation("id")
	unchecked.DisableCheck = true
	_, err = f.runner.Lookup(t.Context(), unchecked)
	wantText(t, err, "no CHECK")
	if v := f.runner.Verification(unchecked); v.By != VerifyByLookup || !strings.Contains(v.Reason, "no ADD") {
		t.Errorf("got %+v", v)
	}
	f.addInStore(f.call("third"))
	f.wantLookup(f.invocation("other"), "")
	if v := f.runner.Verification(unchecked); v != (Verification{By: VerifyByLookup}) {
		t.Errorf("got %+v", v)
	}
}

func TestLookupOutsideRanges(t *testing.T) {
	f := newReal(t, dualStack)
	f.addInStore(f.call("id"))
	f.writeLease("10.9.0.9", "mine\r\neth0")
	f.writeLease("10.1.0.9", "mine\r\neth0")
	got, err := f.runner.Lookup(t.Context(), f.invocation("mine"))
	wantText(t, err, "10.9.0.9 is in none of the ranges")
	if text := ipsOf(got); text != "10.1.0.9/32, 10.9.0.9/32" {
		t.Errorf("got %q, want both with their full length", text)
	}
}

// Lookup waits for a plugin process of a previous run; Holds does not.
func TestLookupWaitsForLock(t *testing.T) {
	f := newReal(t, dualStack)
	f.addInStore(f.call("id"))
	lock, err := f.runner.locks.Lock(t.Context(), "id")
	check.Must(t, err)
	defer lock.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.runner.Lookup(ctx, f.invocation("id"))
	wantText(t, err, "waiting for a plugin process")
	f.wantHolds(f.invocation("id"), addrs("10.1.0.2", "fd00::2"), true)
}
