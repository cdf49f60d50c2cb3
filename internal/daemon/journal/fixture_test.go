package journal

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// sample returns a record with a value in every kind of field.
func sample(owner string) attachment.Record {
	at := time.Date(2025, 3, 1, 12, 0, 0, 123456789, time.UTC)
	return attachment.Record{
		ContainerID: "id-" + owner,
		Owner:       owner,
		Pool:        "default",
		Node:        "worker-1",
		State:       attachment.Held,
		Network:     "net",
		Result: call.Result{
			Addresses: []call.Address{{
				Prefix:  netip.MustParsePrefix("10.1.0.7/24"),
				Gateway: netip.MustParseAddr("10.1.0.1"),
			}},
			Raw: []byte(`{"cniVersion":"1.0.0"}`),
		},
		Claims:      []attachment.Family{attachment.IPv4},
		Expiration:  &attachment.Expiration{UUID: "7c9e", Deadline: at.Add(time.Minute)},
		Invocations: []call.Invocation{{Network: "net", Config: []byte(`{"name":"net"}`)}},
		BootID:      "boot",
		Created:     at,
		Changed:     at,
	}
}

// fixture is a journal in an own state directory.
type fixture struct {
	*Journal
	t   testing.TB
	dir string
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: filepath.Join(t.TempDir(), "state")}
	f.start(Options{Metadata: Metadata{MachineID: "machine", BootID: "boot", Node: "node"}})
	t.Cleanup(func() { f.stop() })
	return f
}

// start opens the journal as a new process does.
func (f *fixture) start(o Options) {
	f.t.Helper()
	state, err := statedir.Lock(f.t.Context(), f.dir, statedir.Holder{}, nil)
	check.Must(f.t, err)
	f.Journal = Open(state, o)
}

func (f *fixture) stop() {
	f.t.Helper()
	f.Close()
	check.NoError(f.t, f.state.Close())
}

// restart is the start of another process, which loads the journal.
func (f *fixture) restart() Loaded {
	f.t.Helper()
	f.stop()
	f.start(f.options)
	return f.load()
}

func (f *fixture) load() Loaded {
	f.t.Helper()
	l, err := f.Load()
	check.Must(f.t, err)
	return l
}

func (f *fixture) write(records ...attachment.Record) {
	f.t.Helper()
	for _, r := range records {
		check.Must(f.t, f.Write(r))
	}
}

// path is that of the journal's file.
func (f *fixture) path() string { return filepath.Join(f.dir, fileName) }

// wantRecords wants these records on disk, and nothing quarantined.
func (f *fixture) wantRecords(want ...attachment.Record) {
	f.t.Helper()
	check.Equal(f.t, "loaded", f.restart(), Loaded{Records: want, BootID: "boot"})
}
