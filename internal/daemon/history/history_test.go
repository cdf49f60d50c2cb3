package history

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func open(t *testing.T, path string) (*Log, *test.Hook) {
	t.Helper()
	dir, err := statedir.Open(path)
	check.Must(t, err)
	log, hook := test.NewNullLogger()
	l := New(dir, log)
	t.Cleanup(func() {
		l.Close()
		_ = dir.Close()
	})
	return l, hook
}

// read returns the events of a state directory, each as "kind owner addresses".
func read(t *testing.T, path string) (all []string) {
	t.Helper()
	events, err := Read(path)
	check.Must(t, err)
	for _, e := range events {
		if e.Time.IsZero() || e.Time.Location() != time.UTC {
			t.Errorf("an event has the time %s", e.Time)
		}
		all = append(all, fmt.Sprint(e.Event, " ", e.Owner, " ", e.Addresses))
	}
	return all
}

func want(t *testing.T, path string, events ...string) {
	t.Helper()
	check.Equal(t, "events", strings.Join(read(t, path), "\n"), strings.Join(events, "\n"))
}

func record(state attachment.State, ips ...string) attachment.Record {
	r := attachment.Record{Owner: "router", Pool: "blue", Network: "pods", ContainerID: "cilium-agent-router-0", State: state}
	for _, ip := range ips {
		r.Result.Addresses = append(r.Result.Addresses, call.Address{Prefix: netip.MustParsePrefix(ip + "/24")})
	}
	return r
}

func TestChanged(t *testing.T) {
	none := attachment.Record{}
	const v4, v6, other = "10.0.0.2", "fd00::2", "10.0.0.3"
	both := "[" + v4 + " " + v6 + "]"
	claimed := record(attachment.Held, v4, v6)
	claimed.Claims = []attachment.Family{attachment.IPv4}
	for name, tt := range map[string]struct {
		before, after attachment.Record
		want          []string
	}{
		"intent":              {none, record(attachment.Adding), nil},
		"allocated":           {record(attachment.Adding), record(attachment.Held, v4, v6), []string{"allocated router " + both}},
		"adopted":             {none, record(attachment.Held, v4), []string{"allocated router [" + v4 + "]"}},
		"claim":               {record(attachment.Held, v4, v6), claimed, nil},
		"cooldown":            {record(attachment.Held, v4, v6), record(attachment.Cooldown, v4, v6), []string{"released router " + both}},
		"cooldown ends":       {record(attachment.Cooldown, v4), record(attachment.Releasing, v4), nil},
		"requested again":     {record(attachment.Cooldown, v4), record(attachment.Held, v4), []string{"allocated router [" + v4 + "]"}},
		"DEL is due":          {record(attachment.Held, v4), record(attachment.Releasing, v4), nil},
		"freed":               {record(attachment.Releasing, v4, v6), none, []string{"freed router " + both}},
		"freed, late DEL":     {record(attachment.Releasing, v4), record(attachment.Tombstone), []string{"freed router [" + v4 + "]"}},
		"late DEL ends":       {record(attachment.Tombstone, v4), none, nil},
		"no address":          {record(attachment.Adding), none, nil},
		"undone ADD":          {record(attachment.Releasing), none, nil},
		"lost":                {record(attachment.Held, v4), record(attachment.Adding, v4), []string{"lost router [" + v4 + "]"}},
		"got again":           {record(attachment.Adding, v4), record(attachment.Held, v4), []string{"allocated router [" + v4 + "]"}},
		"got another":         {record(attachment.Adding, v4, v6), record(attachment.Held, other, v6), []string{"freed router [" + v4 + "]", "allocated router [" + other + " " + v6 + "]"}},
		"found another":       {record(attachment.Held, v4), record(attachment.Held, other), []string{"freed router [" + v4 + "]", "allocated router [" + other + "]"}},
		"lost and given up":   {record(attachment.Adding, v4), none, []string{"freed router [" + v4 + "]"}},
		"new container again": {record(attachment.Tombstone), record(attachment.Held, v4), []string{"allocated router [" + v4 + "]"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			l, _ := open(t, path)
			l.Changed(tt.before, tt.after)
			want(t, path, tt.want...)
		})
	}
}

func add(l *Log, owners ...string) {
	for _, owner := range owners {
		l.Add(Event{Event: Allocated, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Owner: owner, Pool: "blue"})
	}
}

func event(owner string) string { return "allocated " + owner + " [10.0.0.2]" }

// A line that a crash tore, or that is no event, is skipped, and the next one is whole.
func TestTorn(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, name)
	check.Must(t, os.WriteFile(file, []byte("{\"time\":\"2026-01-01T00:00:00Z\",\"event\":\"allocated\",\"owner\":\"first\"}\nnull\n{\"time\":\"2026-01-01T00:0"), 0o600))
	l, _ := open(t, path)
	add(l, "second")
	want(t, path, "allocated first []", event("second"))
	l.Close()
	add(l, "third")
	want(t, path, "allocated first []", event("second"), event("third"))
	data, err := os.ReadFile(file)
	check.Must(t, err)
	check.Equal(t, "lines", strings.Count(string(data), "\n"), 5)
}

// There are at most two files, which are private.
func TestRotation(t *testing.T) {
	path := t.TempDir()
	l, _ := open(t, path)
	l.max = 300
	for i := range 20 {
		add(l, fmt.Sprint("owner-", i))
	}
	entries, err := os.ReadDir(path)
	check.Must(t, err)
	check.Equal(t, "files", len(entries), 2)
	for _, e := range entries {
		info, err := e.Info()
		check.Must(t, err)
		if info.Size() > l.max || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes and mode %04o", e.Name(), info.Size(), info.Mode().Perm())
		}
	}
	got := read(t, path)
	if len(got) < 2 || got[len(got)-1] != event("owner-19") || got[len(got)-2] != event("owner-18") {
		t.Errorf("got %q; want the last events", got)
	}
	check.Must(t, os.Remove(filepath.Join(path, older)))
	check.Must(t, os.Link(filepath.Join(path, name), filepath.Join(path, older))) // renamed between the two opens
	if again := read(t, path); len(again) >= len(got) {
		t.Errorf("events are read twice: %q", again)
	}
}

// A crash, or a disk without space for another file, leaves only the older one.
func TestRotationInterrupted(t *testing.T) {
	path := t.TempDir()
	l, _ := open(t, path)
	add(l, "a")
	l.Close()
	check.Must(t, os.Rename(filepath.Join(path, name), filepath.Join(path, older)))
	want(t, path, event("a"))
	add(l, "b")
	want(t, path, event("a"), event("b"))
}

// A file that another process has removed is replaced by the next rotation at the latest.
func TestRemovedFile(t *testing.T) {
	path := t.TempDir()
	l, _ := open(t, path)
	l.max = 300
	add(l, "a")
	check.Must(t, os.Remove(filepath.Join(path, name)))
	add(l, "b", "c", "d", "e")
	check.True(t, slices.Contains(read(t, path), event("e")), "got %q; want the last event", read(t, path))
}

// Errors stop nothing, and are logged once until an event could be written again.
func TestErrors(t *testing.T) {
	path := t.TempDir()
	l, hook := open(t, path)
	blocked := filepath.Join(path, name)
	check.Must(t, os.Mkdir(blocked, 0o700))
	add(l, "a", "b")
	check.Must(t, os.Remove(blocked))
	add(l, "c")
	l.Close()
	check.Must(t, os.Rename(blocked, blocked+"x"))
	check.Must(t, os.Mkdir(blocked, 0o700))
	add(l, "d")
	if entries := hook.AllEntries(); len(entries) != 2 || entries[0].Level != logrus.WarnLevel {
		t.Errorf("logged %v; want one warning for each time without events", entries)
	}
	if _, err := Read(path); err == nil {
		t.Error("a directory was read")
	}
	if _, err := Read(filepath.Join(path, "none")); err == nil {
		t.Error("a missing state directory was read")
	}
	want(t, t.TempDir())
}
