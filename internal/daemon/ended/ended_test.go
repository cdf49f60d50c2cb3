package ended

import (
	"context"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// leases is an engine with containers by owner.
type leases map[string]engine.Attachment

func (l leases) All() iter.Seq[engine.Attachment] { return maps.Values(maps.Clone(l)) }

func (l leases) ReleaseContainer(_ context.Context, k attachment.Key, ended func(engine.Attachment) bool) (bool, error) {
	if !ended(l[k.Owner]) {
		return false, nil
	}
	delete(l, k.Owner)
	return true, nil
}

func (l leases) left() string { return strings.Join(slices.Sorted(maps.Keys(l)), " ") }

// own is the namespace of owners without one.
const own = "/own"

// hostMount is the mount of a directory of the host, and emptyMount that of another one.
var (
	hostMount  = files.Mount{Type: "tmpfs", Point: "/run/netns", Receives: true}
	emptyMount = files.Mount{Type: "tmpfs", Point: "/run/netns"}
)

type fixture struct {
	*Sweeper
	leases leases
	dir    string
	start  time.Time
}

// newFixture has held containers a and b, of which a's namespace is missing.
func newFixture(t *testing.T, delay time.Duration, m files.Mount) *fixture {
	f := &fixture{leases: leases{}, dir: t.TempDir(), start: time.Now().Add(-time.Hour)}
	f.Sweeper = New(f.leases, delay, own, logrus.New())
	f.mountOf = func(string) files.Mount { return m }
	for _, id := range []string{"a", "b"} {
		f.add(id, "IgnoreUnknown=1;K8S_POD_INFRA_CONTAINER_ID="+id)
	}
	f.create(t, "b")
	return f
}

func (f *fixture) path(id string) string { return filepath.Join(f.dir, id) }

func (f *fixture) add(id, args string) {
	inv := call.Invocation{NetNS: f.path(id), Args: args}
	inv.ContainerID = id
	owner := attachment.ContainerOwner(id, "eth0")
	f.leases[owner] = engine.Attachment{Record: attachment.Record{
		Owner: owner, State: attachment.Held, Created: f.start.Add(-time.Hour), Invocations: []call.Invocation{inv},
	}}
}

func (f *fixture) create(t *testing.T, id string) {
	t.Helper()
	check.Must(t, os.WriteFile(f.path(id), nil, 0o600))
}

// change changes the record of a container.
func (f *fixture) change(id string, how func(*attachment.Record)) {
	owner := attachment.ContainerOwner(id, "eth0")
	a := f.leases[owner]
	how(&a.Record)
	delete(f.leases, owner)
	f.leases[a.Owner] = a
}

// after sweeps at a time after the start.
func (f *fixture) after(d time.Duration) { f.sweep(context.Background(), f.start.Add(d)) }

// reported sets the time of the last report.
func (f *fixture) reported(after time.Duration, sandboxes ...string) {
	_ = f.Report("containerd v2.4.2", sandboxes)
	f.report.received = f.start.Add(after)
}

const both, onlyB, onlyA = "cni/a/eth0 cni/b/eth0", "cni/b/eth0", "cni/a/eth0"

func TestMissingNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		mount   files.Mount
		prepare func(f *fixture)
		left    string
	}{
		"the mount is the host's":           {hostMount, func(*fixture) {}, onlyB},
		"the mount is another one":          {emptyMount, func(*fixture) {}, both},
		"the container's own file system":   {files.Mount{Point: "/", Receives: true}, func(*fixture) {}, both},
		"the directory is missing":          {files.Mount{}, func(*fixture) {}, both},
		"an ADD's namespace can be seen":    {emptyMount, func(f *fixture) { f.Adding(f.path("b")) }, onlyB},
		"an ADD's namespace cannot be seen": {hostMount, func(f *fixture) { f.Adding(f.path("b")); f.Adding(f.path("new")) }, both},
		"of an ADD that names none":         {hostMount, func(f *fixture) { f.Adding(""); f.Adding(own); f.Adding("/proc/1/ns/net") }, onlyB},
		"no namespace is recorded":          {hostMount, func(f *fixture) { f.change("a", func(r *attachment.Record) { r.Invocations[0].NetNS = own }) }, both},
		"of a process": {hostMount, func(f *fixture) {
			f.change("a", func(r *attachment.Record) { r.Invocations[0].NetNS = "/proc/1/ns/a" })
		}, both},
		"not a container": {hostMount, func(f *fixture) { f.change("a", func(r *attachment.Record) { r.Owner = "a" }) }, "a " + onlyB},
		"not held":        {hostMount, func(f *fixture) { f.change("a", func(r *attachment.Record) { r.State = attachment.Releasing }) }, both},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, time.Minute, c.mount)
			c.prepare(f)
			before := f.leases.left()
			f.after(0)
			f.after(time.Minute - 1)
			check.Equal(t, "left before the delay", f.leases.left(), before)
			f.after(time.Minute)
			check.Equal(t, "left after it", f.leases.left(), c.left)
		})
	}
}

// A namespace that is seen again, or a directory that is hidden meanwhile, begins the time anew.
func TestMissingNamespaceSeenAgain(t *testing.T) {
	f := newFixture(t, time.Minute, hostMount)
	f.after(0)
	f.create(t, "a")
	f.after(time.Minute)
	check.Must(t, os.Remove(f.path("a")))
	f.after(2 * time.Minute)
	f.Adding(f.path("hidden"))
	f.after(3 * time.Minute)
	f.Adding(f.path("b"))
	f.after(4 * time.Minute)
	check.Equal(t, "left", f.leases.left(), both)
	f.after(5 * time.Minute)
	check.Equal(t, "left", f.leases.left(), onlyB)
}

// A container that is added or used again between two sweeps, or while others are released, is not released. The
// wall clock may have been set back since its ADD.
func TestEndedAndAddedAgain(t *testing.T) {
	again := func(f *fixture, how func(*engine.Attachment)) {
		a := f.leases[onlyA]
		how(&a)
		f.leases[onlyA] = a
	}
	for name, c := range map[string]struct {
		between func(*testing.T, *fixture)
		left    string
	}{
		"another record": {func(_ *testing.T, f *fixture) { again(f, func(a *engine.Attachment) { a.Created = f.start }) }, both},
		"a later request": {func(_ *testing.T, f *fixture) {
			again(f, func(a *engine.Attachment) { a.LastUsed = f.start.Add(time.Second) })
		}, both},
		"a request before": {func(_ *testing.T, f *fixture) { again(f, func(a *engine.Attachment) { a.LastUsed = f.start }) }, onlyB},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, time.Minute, hostMount)
			f.after(0)
			c.between(t, f)
			f.after(time.Minute)
			check.Equal(t, "left", f.leases.left(), c.left)
			f.after(3 * time.Minute)
			check.Equal(t, "left after a new delay", f.leases.left(), onlyB)
		})
	}
	f := newFixture(t, time.Minute, hostMount)
	again(f, func(a *engine.Attachment) { a.Created = f.start.Add(24 * time.Hour) })
	f.after(0)
	f.after(time.Minute)
	check.Equal(t, "left after the clock was set back", f.leases.left(), onlyB)

	// Its namespace exists when its turn comes.
	f = newFixture(t, time.Minute, hostMount)
	f.after(0)
	f.engine = slowEngine{f.leases, func() { f.create(t, "a") }}
	f.after(time.Minute)
	check.Equal(t, "left", f.leases.left(), both)
}

// slowEngine calls a function before each release.
type slowEngine struct {
	leases
	before func()
}

func (s slowEngine) ReleaseContainer(ctx context.Context, k attachment.Key, ended func(engine.Attachment) bool) (bool, error) {
	s.before()
	return s.leases.ReleaseContainer(ctx, k, ended)
}

// The runtime is asked first. A container that it does not know is released after two reports with the longest
// time between them in which it may not list a sandbox that starts.
func TestUnknownSandbox(t *testing.T) {
	sandboxes := func(f *fixture, list ...string) func(time.Duration) {
		return func(after time.Duration) { f.reported(after, list...) }
	}
	for name, c := range map[string]struct {
		report  []string
		again   time.Duration // when it reports again
		prepare func(f *fixture)
		left    string
	}{
		"does not know b, whose namespace is missing": {[]string{"a"}, minUnknown, func(f *fixture) { _ = os.Remove(f.path("b")) }, onlyA},
		"does not know b, whose file is left":         {[]string{"a"}, minUnknown, func(*fixture) {}, onlyA},
		"knows a, whose namespace is missing":         {[]string{"a", "b"}, minUnknown, func(*fixture) {}, both},
		"of one report":                               {[]string{"a"}, 0, func(*fixture) {}, both},
		"of reports that end while it may start":      {[]string{"a"}, 3 * time.Minute, func(*fixture) {}, both},
		"of another client than the runtime": {[]string{"a"}, minUnknown, func(f *fixture) {
			f.change("b", func(r *attachment.Record) { r.Invocations[0].Args = "IgnoreUnknown=1" })
		}, both},
		"added after the report": {[]string{"a"}, minUnknown, func(f *fixture) { f.change("b", func(r *attachment.Record) { r.Created = f.start.Add(time.Hour) }) }, both},
		"a hidden directory":     {[]string{"b"}, minUnknown, func(f *fixture) { f.Adding(f.path("hidden")) }, onlyB},
		"a namespace in /proc": {[]string{"b"}, minUnknown, func(f *fixture) {
			f.change("a", func(r *attachment.Record) { r.Invocations[0].NetNS = "/proc/0/ns/net" })
		}, onlyB},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, time.Minute, hostMount)
			c.prepare(f)
			report := sandboxes(f, c.report...)
			report(0)
			f.after(0)
			f.after(minUnknown - 1)
			check.Equal(t, "left before the delay", f.leases.left(), both)
			report(c.again)
			f.after(minUnknown)
			check.Equal(t, "left after it", f.leases.left(), c.left)
		})
	}
}

// A living process keeps a namespace that the runtime has forgotten.
func TestUnknownSandboxWithNamespace(t *testing.T) {
	f := newFixture(t, time.Minute, emptyMount)
	link := f.path("b")
	check.Must(t, os.Remove(link))
	check.Must(t, os.Symlink("/proc/self/ns/net", link))
	for i := range 3 {
		f.reported(time.Duration(i)*minUnknown, "a")
		f.after(time.Duration(i) * minUnknown)
	}
	check.Equal(t, "left", f.leases.left(), both)
}

// Without a new report the namespaces decide again.
func TestOldReport(t *testing.T) {
	f := newFixture(t, time.Minute, hostMount)
	f.reported(0, "a", "b")
	f.after(0)
	f.after(MaxReportAge)
	check.Equal(t, "left while it counts", f.leases.left(), both)
	f.after(MaxReportAge + time.Minute)
	f.after(MaxReportAge + 2*time.Minute)
	check.Equal(t, "left", f.leases.left(), onlyB)
}

func TestEmptyReport(t *testing.T) {
	f := newFixture(t, time.Minute, hostMount)
	f.reported(0, "a", "b")
	if err := f.Report("containerd", nil); err == nil {
		t.Error("an empty list was taken")
	}
	check.Equal(t, "sandboxes", f.Status().Sandboxes, int64(2))
}

// Without a delay nothing is released, but the status has it.
func TestStatus(t *testing.T) {
	f := newFixture(t, 0, hostMount)
	f.after(0)
	check.Equal(t, "pending, found once", f.Status().Pending, int64(0))
	f.after(time.Hour)
	s := f.Status()
	if s.Pending != 1 || !time.Time(*s.Oldest).Equal(f.start) || s.DelaySeconds != 0 || s.HiddenDirectories != nil {
		t.Errorf("got %+v", s)
	}
	check.Equal(t, "left", f.leases.left(), both)

	f = newFixture(t, time.Minute, emptyMount)
	f.after(0)
	f.reported(0, "a", "b", "c")
	s = f.Status()
	if s.Pending != 0 || !slices.Equal(s.HiddenDirectories, []string{f.dir}) || s.Runtime != "containerd v2.4.2" || s.Sandboxes != 3 {
		t.Errorf("got %+v", s)
	}
}

func TestNamespaceExists(t *testing.T) {
	f := newFixture(t, 0, hostMount)
	exists := NamespaceExists(own)
	check.Equal(t, "a file", exists(f.leases[onlyB].Record), false)
	f.change("b", func(r *attachment.Record) { r.Invocations[0].NetNS = f.path("c") })
	check.Must(t, os.Symlink("/proc/self/ns/net", f.path("c")))
	check.Equal(t, "a namespace", exists(f.leases[onlyB].Record), true)
}
