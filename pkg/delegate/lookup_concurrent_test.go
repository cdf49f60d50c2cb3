package delegate

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// Pods come and go in the same folder while an attachment stays. Its addresses are
// found every time, and what is not there is never found: a lookup needs no lock.
func TestLookupsAreRightWhileHostLocalAddsAndDeletes(t *testing.T) {
	b := realBench(t, wide, `{}`)
	stable := b.proven(b.call("stable"))
	target, absent := b.context("stable"), b.context("absent")
	var pods, readers sync.WaitGroup
	var over atomic.Bool
	for pod := range 3 {
		c := b.call(fmt.Sprintf("pod-%d", pod))
		pods.Go(func() {
			for range 25 {
				if _, err := b.runner.Add(t.Context(), c); err != nil {
					t.Error(err)
				}
				if err := b.runner.Del(t.Context(), c); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Go(func() {
		for !over.Load() {
			if held, err := b.runner.Holds(target, addrsOf(stable)); !held || err != nil {
				t.Errorf("Holds: got %v, %v", held, err)
			}
		}
	})
	readers.Go(func() {
		for !over.Load() {
			if got, err := b.runner.Lookup(t.Context(), target); err != nil || describe(got) != describe(stable) {
				t.Errorf("Lookup: got %s, %v; want %s", describe(got), err, describe(stable))
			}
			// A file that is just being written may be empty: then it is unknown.
			if got, err := b.runner.Lookup(t.Context(), absent); len(got.Addresses) > 0 || err != nil && !strings.Contains(err.Error(), "names no") {
				t.Errorf("Lookup of an absent ID: got %s, %v", describe(got), err)
			}
		}
	})
	pods.Wait()
	over.Store(true)
	readers.Wait()
}

// BenchmarkLookup measures Holds beside the bare CHECK that it replaces.
func BenchmarkLookup(b *testing.B) {
	bin := os.Getenv(realPlugins)
	if bin == "" {
		b.Skipf("%s is not set; it names a folder with the real host-local", realPlugins)
	}
	for _, leases := range []int{10, 10_000} {
		data := b.TempDir()
		r, err := New(Options{BinDirs: []string{bin}, LockFile: filepath.Join(data, "calls.lock"), Profiles: embeddedProfiles})
		if err != nil {
			b.Fatal(err)
		}
		c, err := r.NewInvocation(b.Context(), call.Network{Name: "net", PluginConfig: []byte(`{"ipam":` + strings.ReplaceAll(wide, "DIR", data) + `}`)}, "id", "owner")
		if err != nil {
			b.Fatal(err)
		}
		target := call.Call{ContainerID: "id", Invocation: c}
		added, err := r.Add(b.Context(), target)
		if err != nil || !added.InStore {
			b.Fatal(added, err)
		}
		target.PrevResult = added.Raw
		ip := netip.MustParseAddr("10.1.100.0")
		for i := range leases {
			if err := os.WriteFile(filepath.Join(data, "net", ip.String()), fmt.Appendf(nil, "pod-%d\r\neth0", i), 0o600); err != nil {
				b.Fatal(err)
			}
			ip = ip.Next()
		}
		b.Run(fmt.Sprintf("CHECK/%d", leases), func(b *testing.B) {
			for b.Loop() {
				if err := r.Check(b.Context(), target); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("Holds/%d", leases), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if held, err := r.Holds(c, addrsOf(added)); !held || err != nil {
					b.Fatal(held, err)
				}
			}
		})
	}
}
