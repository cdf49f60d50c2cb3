package plugin

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// moveStore is a wrapper that sends host-local to another directory: the files in the configured one
// are not its own.
const moveStore = `sed "s#\"dataDir\":\"$HERE\"#\"dataDir\":\"$HERE/moved\"#" | $HOST_LOCAL`

func TestLookupOffForWrapper(t *testing.T) {
	logger, log := logtest.NewNullLogger()
	f := wrapHostLocal(t, moveStore, func(o *Options) { o.Log = logger })
	const reason = "lookup is off for network net: ADD returned 10.1.0.2, but "
	got := f.add(f.call("id"))
	f.add(f.call("second"))
	warnings := slices.DeleteFunc(log.AllEntries(), func(e *logrus.Entry) bool {
		return e.Level != logrus.WarnLevel || !strings.HasPrefix(e.Message, reason)
	})
	if got.InStore || len(warnings) != 1 {
		t.Errorf("found in the store: %t, with the warnings %v; want not found, and one for the network", got.InStore, warnings)
	}
	inv := f.invocation("id")
	f.wantNoLookup(inv, call.Addrs(got.Addresses), reason)
	if v := f.runner.Verification(inv); v.By != "check" || !strings.Contains(v.Reason, reason) || !strings.Contains(v.Reason, "wrapper") {
		t.Errorf("got %+v", v)
	}
	f.network.Name = "another"
	if v := f.runner.Verification(f.invocation("id")); v.By != VerifyByLookup {
		t.Errorf("another network: got %+v", v)
	}
}

// In a store that another process fills, the ID may be found by chance, or from a restored backup:
// the plugin's own CHECK decides.
func TestLookupForeignDir(t *testing.T) {
	f := wrapHostLocal(t, moveStore)
	f.writeLease("10.1.0.9", "id\r\neth0")
	got, err := f.runner.Lookup(t.Context(), f.invocation("id"))
	wantText(t, err, "not confirmed")
	if len(got.Addresses) != 0 {
		t.Errorf("got %s", ipsOf(got))
	}
}

// Pods come and go in the directory of an attachment. Its addresses are found each time, and addresses
// that do not exist never: a lookup needs no lock.
func TestConcurrentLookup(t *testing.T) {
	f := newReal(t, dualStack)
	stable := f.addInStore(f.call("stable"))
	target, absent := f.invocation("stable"), f.invocation("absent")
	var pods, readers sync.WaitGroup
	var stop atomic.Bool
	for pod := range 3 {
		c := f.call(fmt.Sprintf("pod-%d", pod))
		pods.Go(func() {
			for range 25 {
				for _, verb := range []string{call.VerbAdd, call.VerbDel} {
					if err := f.run(verb, c); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	readers.Go(func() {
		for !stop.Load() {
			f.wantHolds(target, call.Addrs(stable.Addresses), true)
		}
	})
	readers.Go(func() {
		for !stop.Load() {
			f.wantLookup(target, ipsOf(stable))
			// A file that is being written may be empty: then the result is unknown.
			if got, err := f.runner.Lookup(t.Context(), absent); len(got.Addresses) > 0 || err != nil && !strings.Contains(err.Error(), "names no") {
				t.Errorf("Lookup of an absent ID: got %s, %v", ipsOf(got), err)
			}
		}
	})
	pods.Wait()
	stop.Store(true)
	readers.Wait()
}
