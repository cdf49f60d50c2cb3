package delegate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// proven runs an ADD whose result a lookup must be able to verify afterwards.
func (b *bench) proven(c call.Call) call.Result {
	b.t.Helper()
	got, err := b.runner.Add(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	if !got.InStore {
		b.t.Fatalf("the result of ADD was not found in the store: %+v", b.runner.Verification(c.Invocation))
	}
	return got
}

// lease writes a file into the store of the real host-local.
func (b *bench) lease(name, text string) {
	b.t.Helper()
	dir := filepath.Join(b.scripts, "net")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
		b.t.Fatal(err)
	}
}

// unlease removes a file from the store of the real host-local.
func (b *bench) unlease(name string) {
	b.t.Helper()
	if err := os.Remove(filepath.Join(b.scripts, "net", name)); err != nil {
		b.t.Fatal(err)
	}
}

func addrsOf(r call.Result) []netip.Addr {
	var all []netip.Addr
	for _, a := range r.Addresses {
		all = append(all, a.Addr())
	}
	return all
}

// wantUnknown checks that a lookup has found out nothing.
func wantUnknown(t *testing.T, err error, want string) {
	t.Helper()
	var failed *call.LookupError
	if !errors.As(err, &failed) || !errors.Is(err, call.ErrNoLookup) || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want a *call.LookupError with %q", err, want)
	}
}

func TestALookupReturnsWhatTheADDOfTheRealHostLocalReturned(t *testing.T) {
	for name, ipam := range map[string]string{
		"two families":                   `"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]`,
		"IPv6 first":                     `"ranges":[[{"subnet":"fd00::/120"}],[{"subnet":"10.1.0.0/24"}]]`,
		"IPv6 alone with routes":         `"ranges":[[{"subnet":"fd00::/120","gateway":"fe80::1"}]],"routes":[{"dst":"::/0"},{"dst":"fd01::/64","gw":"fd00::9"}]`,
		"two sets of one family":         `"ranges":[[{"subnet":"10.2.0.0/24"}],[{"subnet":"10.1.0.0/24"}]]`,
		"a set of two ranges":            `"ranges":[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.1","rangeEnd":"10.1.0.1"},{"subnet":"10.2.0.0/23","rangeStart":"10.2.1.9","gateway":"10.2.0.77"}]]`,
		"two ranges of one subnet":       `"ranges":[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.50","rangeEnd":"10.1.0.60","gateway":"10.1.0.3"}],[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.20","rangeEnd":"10.1.0.30","gateway":"10.1.0.4"}]]`,
		"the old form":                   `"subnet":"10.1.0.0/16","rangeStart":"10.1.5.5","rangeEnd":"10.1.5.9","gateway":"10.1.255.254","routes":[{"dst":"0.0.0.0/0"}]`,
		"the old form and ranges":        `"subnet":"10.1.0.0/16","ranges":[[{"subnet":"fd00::/64"}]]`,
		"small subnets":                  `"ranges":[[{"subnet":"10.1.0.8/29"}],[{"subnet":"fd00::8/125"}]]`,
		"addresses of IPv4 in IPv6 form": `"ranges":[[{"subnet":"10.1.0.0/24","rangeStart":"::ffff:10.1.0.7","gateway":"::ffff:10.1.0.9"}]]`,
	} {
		for _, plugins := range []string{realPlugins, oldPlugins} {
			t.Run(name+", "+plugins, func(t *testing.T) {
				b := benchOf(t, plugins, `{"type":"host-local","dataDir":"DIR",`+ipam+`}`, `{}`)
				target := b.call("id")
				b.proven(b.call("other"))
				want := b.proven(target)
				got, err := b.runner.Lookup(t.Context(), target.Invocation)
				if err != nil {
					t.Fatal(err)
				}
				if describe(got) != describe(want) || !sameJSON(t, got.Raw, want.Raw) {
					t.Errorf("got %s, %s\nwant %s, %s", describe(got), got.Raw, describe(want), want.Raw)
				}
				if held, err := b.runner.Holds(target.Invocation, addrsOf(want)); !held || err != nil {
					t.Errorf("got held %v, %v", held, err)
				}
				target.PrevResult = got.Raw
				b.must(call.VerbCheck, target)
				b.must(call.VerbDel, target)
				if held, err := b.runner.Holds(target.Invocation, addrsOf(want)); held || err != nil {
					t.Errorf("after DEL got held %v, %v", held, err)
				}
				if got, err = b.runner.Lookup(t.Context(), target.Invocation); err != nil || len(got.Addresses) != 0 {
					t.Errorf("after DEL got %s, %v", describe(got), err)
				}
			})
		}
	}
}

func TestALookupNeedsTheRightContainerIDAndInterface(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	b.proven(b.call("id"))
	v4, both := addrs("10.1.0.9"), addrs("10.1.0.9", "fd00::9")
	for name, c := range map[string]struct {
		files   map[string]string
		addrs   []netip.Addr
		held    bool
		unknown string
		found   string
	}{
		"this ID and interface":              {map[string]string{"10.1.0.9": "mine\r\neth0"}, v4, true, "", "10.1.0.9/24 via 10.1.0.1"},
		"with a line end behind them":        {map[string]string{"10.1.0.9": "mine\r\neth0\n"}, v4, true, "", "10.1.0.9/24 via 10.1.0.1"},
		"one of two":                         {map[string]string{"10.1.0.9": "mine\r\neth0"}, both, false, "", "10.1.0.9/24 via 10.1.0.1"},
		"another ID":                         {map[string]string{"10.1.0.9": "mine2\r\neth0"}, v4, false, "", ""},
		"another interface":                  {map[string]string{"10.1.0.9": "mine\r\neth1"}, v4, false, "", ""},
		"the beginning of the interface":     {map[string]string{"10.1.0.9": "mine\r\neth"}, v4, false, "10.1.0.9", ""},
		"the ID alone":                       {map[string]string{"10.1.0.9": "mine\r\n"}, v4, false, "10.1.0.9", ""},
		"the beginning of the ID":            {map[string]string{"10.1.0.9": "mi"}, v4, false, "10.1.0.9", ""},
		"an empty file":                      {map[string]string{"10.1.0.9": ""}, v4, false, "names no container ID", ""},
		"zeros, as a power loss leaves them": {map[string]string{"10.1.0.9": "\x00\x00\x00\x00"}, v4, false, "not a lease file", ""},
		"too long a file":                    {map[string]string{"10.1.0.9": strings.Repeat(" ", 8<<10) + "mine\r\neth0"}, v4, false, "not a lease file", ""},
		"no address at all":                  {nil, nil, false, "no address", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for name, text := range c.files {
				b.lease(name, text)
				defer b.unlease(name)
			}
			context := b.context("mine")
			held, err := b.runner.Holds(context, c.addrs)
			if held != c.held {
				t.Errorf("got held %v, want %v", held, c.held)
			}
			got, lookErr := b.runner.Lookup(t.Context(), context)
			if text := describe(got); text != c.found {
				t.Errorf("found %q, want %q", text, c.found)
			}
			if c.unknown == "" || c.addrs == nil {
				err = errors.Join(err, lookErr)
			}
			if c.unknown == "" && err != nil {
				t.Error(err)
			}
			if c.unknown != "" {
				wantUnknown(t, err, c.unknown)
			}
			if c.unknown != "" && c.addrs != nil {
				wantUnknown(t, lookErr, c.unknown)
			}
		})
	}
}

func TestALeaseIsFoundBesideFilesThatCannotBeRead(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	want := b.proven(b.call("id"))
	b.lease("10.1.0.200", "")
	b.lease("10.1.0.201", "id")
	got, err := b.runner.Lookup(t.Context(), b.context("id"))
	if err != nil || describe(got) != describe(want) {
		t.Errorf("got %s, %v; want %s", describe(got), err, describe(want))
	}
}

func TestWhatIsNotARegularFileNeitherBlocksALookupNorIsFollowed(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	b.proven(b.call("id"))
	b.lease("elsewhere", "mine\r\neth0")
	at := func(name string) string { return filepath.Join(b.scripts, "net", name) }
	if err := errors.Join(unix.Mkfifo(at("10.1.0.11"), 0o600), os.Symlink("elsewhere", at("10.1.0.12")), os.Mkdir(at("10.1.0.13"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, ip := range addrs("10.1.0.11", "10.1.0.12", "10.1.0.13") {
		held, err := b.runner.Holds(b.context("mine"), []netip.Addr{ip})
		wantUnknown(t, err, "not a lease file")
		if held {
			t.Errorf("%s is taken for held", ip)
		}
	}
	_, err := b.runner.Lookup(t.Context(), b.context("mine"))
	wantUnknown(t, err, "not a lease file")
}

func TestALookupInAFolderThatIsNotThereOrCannotBeReadIsUnknown(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	c := b.context("id")
	_, err := b.runner.Holds(c, addrs("10.1.0.2"))
	wantUnknown(t, err, "no such file or directory")
	_, err = b.runner.Lookup(t.Context(), c)
	wantUnknown(t, err, "no such file or directory")
	b.lease("10.1.0.2", "id\r\neth0")
	if err := errors.Join(os.RemoveAll(filepath.Join(b.scripts, "net")), os.WriteFile(filepath.Join(b.scripts, "net"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = b.runner.Holds(c, addrs("10.1.0.2"))
	wantUnknown(t, err, "not a directory")
}

func TestALookupInAFolderThatMayNotBeReadIsUnknown(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	got := b.proven(b.call("id"))
	c, dir := b.context("id"), filepath.Join(b.scripts, "net")
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // which may read everything, unless its files are another user's
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		own, err := unix.SetfsuidRetUid(65534)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Setfsuid(own) //nolint:errcheck // as above
	}
	held, err := b.runner.Holds(c, addrsOf(got))
	wantUnknown(t, err, "permission denied")
	if held {
		t.Error("the addresses are taken for held")
	}
	_, err = b.runner.Lookup(t.Context(), c)
	wantUnknown(t, err, "permission denied")
}

func TestAPluginWhoseStoreCannotBeReadIsNotLookedUp(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	got, err := b.runner.Add(t.Context(), target)
	if err != nil || got.InStore {
		t.Errorf("got InStore %v, %v", got.InStore, err)
	}
	_, err = b.runner.Holds(target.Invocation, addrsOf(got))
	wantUnknown(t, err, "has no lookup")
	_, err = b.runner.Lookup(t.Context(), target.Invocation)
	wantUnknown(t, err, "has no lookup")
	if got := b.runner.Verification(target.Invocation); got != (Verification{By: "check"}) {
		t.Errorf("got %+v", got)
	}
}

// Only an ADD shows where a plugin keeps its addresses: before one, a lookup that finds
// nothing may have looked in another folder than the plugin's.
func TestWithoutAnADDALookupFindsOnlyWhatACHECKConfirms(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	want := b.proven(b.call("id"))
	restarted, err := New(b.opts)
	if err != nil {
		t.Fatal(err)
	}
	b.runner = restarted
	got, err := b.runner.Lookup(t.Context(), b.context("id"))
	if err != nil || describe(got) != describe(want) {
		t.Errorf("got %s, %v; want %s", describe(got), err, describe(want))
	}
	_, err = b.runner.Lookup(t.Context(), b.context("other"))
	wantUnknown(t, err, "has proven")
	unchecked := b.context("id")
	unchecked.DisableCheck = true
	_, err = b.runner.Lookup(t.Context(), unchecked)
	wantUnknown(t, err, "no CHECK")
	if v := b.runner.Verification(unchecked); v.By != VerifyByLookup || !strings.Contains(v.Reason, "no ADD") {
		t.Errorf("got %+v", v)
	}
	b.proven(b.call("third"))
	got, err = b.runner.Lookup(t.Context(), b.context("other"))
	if err != nil || len(got.Addresses) != 0 {
		t.Errorf("after an ADD got %s, %v", describe(got), err)
	}
	if v := b.runner.Verification(unchecked); v != (Verification{By: VerifyByLookup}) {
		t.Errorf("got %+v", v)
	}
}

// wrappedHostLocal is a runner for a shell script in place of host-local, which calls
// the real one as the text says: HOST_LOCAL is its path, HERE the folder of the state.
func wrappedHostLocal(t *testing.T, script string, change ...func(*Options)) *bench {
	t.Helper()
	bin := t.TempDir()
	b := realBench(t, dualStack, `{}`, append(change, func(o *Options) { o.BinDirs = []string{bin} })...)
	text := fmt.Sprintf("#!/bin/sh\nHERE=%s\nHOST_LOCAL=%s/host-local\n%s\n", b.scripts, b.bin, script)
	if err := os.WriteFile(filepath.Join(bin, "host-local"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

// movedFolder is a wrapper that sends host-local to another folder.
const movedFolder = `sed "s#\"dataDir\":\"$HERE\"#\"dataDir\":\"$HERE/moved\"#" | $HOST_LOCAL`

// The plugin in the folder of --cni-bin-dir is a script that moves the store: the files
// in the configured folder are not its own.
func TestLookupIsOffForAWrapperWithAnotherFolder(t *testing.T) {
	logger, log := logtest.NewNullLogger()
	b := wrappedHostLocal(t, movedFolder, func(o *Options) { o.Log = logger })
	warnings := func() (n int) {
		for _, e := range log.AllEntries() {
			if e.Level == logrus.WarnLevel && strings.HasPrefix(e.Message, "lookup is off for network net: ADD returned 10.1.0.2, but ") {
				n++
			}
		}
		return n
	}
	target := b.call("id")
	got, err := b.runner.Add(t.Context(), target)
	if err != nil || got.InStore {
		t.Fatalf("got InStore %v, %v", got.InStore, err)
	}
	const why = "lookup is off for network net: ADD returned 10.1.0.2, but "
	_, err = b.runner.Holds(target.Invocation, addrsOf(got))
	wantUnknown(t, err, why)
	_, err = b.runner.Lookup(t.Context(), target.Invocation)
	wantUnknown(t, err, why)
	if v := b.runner.Verification(target.Invocation); v.By != "check" || !strings.Contains(v.Reason, why) || !strings.Contains(v.Reason, "wrapper") {
		t.Errorf("got %+v", v)
	}
	if got := warnings(); got != 1 {
		t.Errorf("%d warnings, want 1", got)
	}
	if got, err = b.runner.Add(t.Context(), b.call("second")); err != nil || got.InStore {
		t.Errorf("got InStore %v, %v", got.InStore, err)
	}
	if got := warnings(); got != 1 {
		t.Errorf("%d warnings after a second ADD, want 1", got)
	}
	other := b.network
	other.Name = "another"
	c, err := b.runner.NewInvocation(t.Context(), other, "id", "owner")
	if v := b.runner.Verification(c); err != nil || v.By != VerifyByLookup {
		t.Errorf("another network: got %+v, %v", v, err)
	}
}

// A store that another process fills, and in which the ID is found by chance or by a
// restored backup: the plugin's own CHECK decides.
func TestAWrappersForeignFolderIsNotBelievedWithoutItsCHECK(t *testing.T) {
	b := wrappedHostLocal(t, movedFolder)
	b.lease("10.1.0.9", "id\r\neth0")
	got, err := b.runner.Lookup(t.Context(), b.context("id"))
	wantUnknown(t, err, "not confirmed")
	if len(got.Addresses) != 0 {
		t.Errorf("got %s", describe(got))
	}
}

func TestAnAddressOutsideTheRangesIsReturnedWithAnError(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	b.proven(b.call("id"))
	b.lease("10.9.0.9", "mine\r\neth0")
	b.lease("10.1.0.9", "mine\r\neth0")
	got, err := b.runner.Lookup(t.Context(), b.context("mine"))
	wantUnknown(t, err, "10.9.0.9 is in none of the ranges")
	if text := describe(got); text != "10.1.0.9/32, 10.9.0.9/32" {
		t.Errorf("got %q, want both with their full length", text)
	}
}

func TestALookupWaitsForAPluginProcessOfThePreviousRun(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	b.proven(b.call("id"))
	lock, err := b.runner.locks.take(t.Context(), "id")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.release()
	gaveUp, giveUp := context.WithCancel(t.Context())
	giveUp()
	_, err = b.runner.Lookup(gaveUp, b.context("id"))
	wantUnknown(t, err, "waiting for a plugin process")
	if held, err := b.runner.Holds(b.context("id"), addrs("10.1.0.2", "fd00::2")); !held || err != nil {
		t.Errorf("Holds waits too: got %v, %v", held, err)
	}
}

// fill writes n leases of pods.
func (b *bench) fill(n int) {
	b.t.Helper()
	ip := netip.MustParseAddr("10.1.100.0")
	for i := range n {
		b.lease(ip.String(), fmt.Sprintf("pod-%d\r\neth0", i))
		ip = ip.Next()
	}
}

const wide = `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/16"}],[{"subnet":"fd00::/112"}]]}`

func TestALookupFindsOneOf10000Leases(t *testing.T) {
	b := realBench(t, wide, `{}`)
	b.fill(10_000)
	want := b.proven(b.call("id"))
	got, err := b.runner.Lookup(t.Context(), b.context("id"))
	if err != nil || describe(got) != describe(want) {
		t.Errorf("got %s, %v; want %s", describe(got), err, describe(want))
	}
	got, err = b.runner.Lookup(t.Context(), b.context("pod-9999"))
	if text := describe(got); err != nil || text != "10.1.139.15/16 via 10.1.0.1" {
		t.Errorf("got %s, %v", text, err)
	}
	if got, err = b.runner.Lookup(t.Context(), b.context("none")); err != nil || len(got.Addresses) != 0 {
		t.Errorf("got %s, %v", describe(got), err)
	}
}
