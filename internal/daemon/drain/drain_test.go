package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/spool"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// fakeEngine notes the DELs, and fails or blocks them.
type fakeEngine struct {
	mu      sync.Mutex
	dels    []call.Container
	err     error
	gate    chan struct{}
	records map[string]attachment.Record // by owner
}

func (e *fakeEngine) DelLeft(_ context.Context, network string, c call.Container, _ time.Time) (bool, error) {
	if e.gate != nil {
		<-e.gate
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dels = append(e.dels, c)
	return network == "pods", e.err
}

func (e *fakeEngine) ContainerRecord(_, owner string) (attachment.Record, bool) {
	r, ok := e.records[owner]
	return r, ok
}

func (e *fakeEngine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.dels)
}

func fixture(t *testing.T) (*Drainer, *spool.Dir, *fakeEngine) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the spool is root's")
	}
	dir, err := spool.Create(t.TempDir())
	check.Must(t, err)
	t.Cleanup(func() { dir.Close() })
	log := logrus.New()
	log.SetOutput(io.Discard)
	e := &fakeEngine{records: map[string]attachment.Record{}}
	return New(dir, nil, e, log), dir, e
}

var web = spool.Entry{Network: "pods", ContainerID: "0123abcd", IfName: "eth0", Args: "K8S_POD_NAME=web", NetNS: "/var/run/netns/a"}

func put(t *testing.T, dir *spool.Dir, e spool.Entry, written time.Time) {
	t.Helper()
	e.Written = written
	check.Must(t, dir.Put(e))
}

func left(t *testing.T, dir *spool.Dir) []string {
	t.Helper()
	names, err := dir.List()
	check.Must(t, err)
	return names
}

func TestDrain(t *testing.T) {
	d, dir, e := fixture(t)
	put(t, dir, web, time.Now())
	d.drain(t.Context())
	want := call.Container{Attachment: call.Attachment{ContainerID: "0123abcd", IfName: "eth0"}, Args: web.Args}
	if len(e.dels) != 1 || e.dels[0].NetNS != "" || e.dels[0].Attachment != want.Attachment || e.dels[0].Args != want.Args {
		t.Errorf("carried out %+v; want %+v", e.dels, want)
	}
	if names := left(t, dir); len(names) > 0 || d.Status().Pending != 0 {
		t.Errorf("the spool has %q, status %+v", names, d.Status())
	}
}

func TestBeforeAdd(t *testing.T) {
	d, dir, e := fixture(t)
	a := call.Attachment{ContainerID: web.ContainerID, IfName: web.IfName}
	check.Must(t, d.BeforeAdd(t.Context(), "pods", a))
	put(t, dir, web, time.Now())
	check.Must(t, d.BeforeAdd(t.Context(), "pods", call.Attachment{ContainerID: "another", IfName: "eth0"}))
	check.Must(t, d.BeforeAdd(t.Context(), "others", a))
	check.Equal(t, "DELs for other interfaces", e.count(), 0)
	check.Must(t, d.BeforeAdd(t.Context(), "pods", a))
	check.Equal(t, "DELs", e.count(), 1)
	check.Must(t, d.BeforeAdd(t.Context(), "pods", a))
	check.Equal(t, "DELs after the second call", e.count(), 1)

	put(t, dir, web, time.Now())
	e.err = errors.New("the server is away")
	var refused *attachment.Error
	if err := d.BeforeAdd(t.Context(), "pods", a); !errors.As(err, &refused) || refused.RetryAfter == 0 {
		t.Errorf("got %v; want an error that is repeated", err)
	}
	check.Must(t, New(nil, errors.New("none"), e, d.log).BeforeAdd(t.Context(), "pods", a))
}

// An ADD waits for a DEL of its interface that is in progress.
func TestBeforeAddWaits(t *testing.T) {
	d, dir, e := fixture(t)
	put(t, dir, web, time.Now())
	e.gate = make(chan struct{})
	drained, added := make(chan struct{}), make(chan error, 1)
	go func() { d.drain(t.Context()); close(drained) }()
	go func() {
		added <- d.BeforeAdd(t.Context(), "pods", call.Attachment{ContainerID: web.ContainerID, IfName: web.IfName})
	}()
	e.gate <- struct{}{}
	<-drained
	check.Must(t, <-added)
	check.Equal(t, "DELs", e.count(), 1)
}

func TestBackoff(t *testing.T) {
	d, dir, e := fixture(t)
	put(t, dir, web, time.Now().Add(-time.Hour))
	e.err = errors.New("the server is away")
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		last := time.Now()
		for range 9 {
			for before := e.count(); e.count() == before; time.Sleep(time.Second) {
				d.drain(t.Context())
			}
			waits, last = append(waits, time.Since(last).Round(time.Second)), time.Now()
		}
		if !slices.IsSorted(waits) || waits[8] < maxBackoff || waits[1] > 2*minBackoff {
			t.Errorf("repeated after %v", waits)
		}
	})
	s := d.Status()
	named := spool.Name(web.Network, web.ContainerID, web.IfName) + ` (network "pods", container ID 0123abcd, interface eth0): the server is away`
	check.Equal(t, "the error", s.Error, named)
	defer func() { // an administrator removes the file
		check.Must(t, os.Remove(filepath.Join(dir.Path(), spool.Name(web.Network, web.ContainerID, web.IfName))))
		d.drain(t.Context())
		check.Equal(t, "pending DELs", d.Status().Pending, int64(0))
	}()
	if s.Pending != 1 || s.Oldest == nil {
		t.Errorf("the status is %+v", s)
	}
}

// A status names some of many DELs that fail.
func TestManyFail(t *testing.T) {
	d, dir, e := fixture(t)
	e.err = errors.New("the server is away")
	for i := range maxNamed + 2 {
		failing := web
		failing.ContainerID = fmt.Sprint("c", i)
		put(t, dir, failing, time.Now())
	}
	d.drain(t.Context())
	if s := d.Status(); s.Pending != maxNamed+2 || strings.Count(s.Error, "the server is away") != maxNamed || !strings.HasSuffix(s.Error, "; and 2 more") {
		t.Errorf("the status is %+v", s)
	}
}

// A DEL that is older than the record's ADD is carried out only if it may be of the same sandbox.
func TestSuperseded(t *testing.T) {
	d, dir, e := fixture(t)
	namespace := filepath.Join(t.TempDir(), "a")
	check.Must(t, os.WriteFile(namespace, nil, 0o600))
	now := time.Now()
	for name, tt := range map[string]struct {
		recorded string // the network namespace of the record
		created  time.Time
		entry    spool.Entry
		dels     int
	}{
		"same sandbox":              {namespace, now.Add(-time.Hour), spool.Entry{NetNS: namespace}, 1},
		"without namespace":         {namespace, now.Add(-time.Hour), spool.Entry{}, 1},
		"later, another path":       {namespace, now.Add(time.Hour), spool.Entry{NetNS: "/var/run/netns/b"}, 0},
		"later, unknown path":       {namespace, now.Add(time.Hour), spool.Entry{}, 0},
		"later, another namespace":  {namespace, now.Add(time.Hour), spool.Entry{NetNS: namespace, Inode: 1, Device: 1}, 0},
		"clock set back, same path": {namespace, now.Add(time.Hour), spool.Entry{NetNS: namespace}, 1},
		"clock set back, a sandbox": {namespace, now.Add(time.Hour), spool.Entry{Args: "K8S_POD_INFRA_CONTAINER_ID=0123abcd"}, 1},
	} {
		e.dels = nil
		e.records["cni/0123abcd/eth0"] = attachment.Record{Created: tt.created, Invocations: []call.Invocation{{NetNS: tt.recorded}}}
		entry := web
		entry.NetNS, entry.Inode, entry.Device = tt.entry.NetNS, tt.entry.Inode, tt.entry.Device
		entry.Args = cmp.Or(tt.entry.Args, entry.Args)
		put(t, dir, entry, now)
		d.drain(t.Context())
		if len(e.dels) != tt.dels || len(left(t, dir)) > 0 {
			t.Errorf("%s: %d DELs; want %d; left %q", name, len(e.dels), tt.dels, left(t, dir))
		}
	}
}

// The status reports that plugins leave DELs in another directory, or can leave none.
func TestReplacedDirectory(t *testing.T) {
	d, dir, _ := fixture(t)
	path, aside := dir.Path(), dir.Path()+".old"
	for _, change := range []func() error{
		func() error { return os.Rename(path, aside) },
		func() error { return os.Mkdir(path, 0o700) },
	} {
		check.Must(t, change())
		d.drain(t.Context())
		check.Contains(t, d.Status().Error, path, "moved or replaced")
	}
	check.Must(t, errors.Join(os.Remove(path), os.Rename(aside, path)))
	d.drain(t.Context())
	check.Equal(t, "error", d.Status().Error, "")
}

// The status reports that plugins refuse the directory.
func TestDirectoryOfOtherMode(t *testing.T) {
	d, dir, _ := fixture(t)
	for mode, want := range map[os.FileMode]string{0o755: "its mode is 0755; expected 0700", 0o700: ""} {
		check.Must(t, os.Chmod(dir.Path(), mode))
		d.drain(t.Context())
		check.Contains(t, d.Status().Error, want)
	}
}

func TestInvalidEntries(t *testing.T) {
	d, dir, e := fixture(t)
	for _, bad := range []spool.Entry{{Network: "pods", ContainerID: "../x", IfName: "eth0"}, {Network: "pods", ContainerID: "a", IfName: ".."}, {ContainerID: "a", IfName: "eth0"}} {
		put(t, dir, bad, time.Now())
	}
	d.drain(t.Context())
	if s := d.Status(); len(e.dels) > 0 || s.Quarantined != 3 || s.Pending != 0 {
		t.Errorf("%d DELs, status %+v", len(e.dels), s)
	}
}
