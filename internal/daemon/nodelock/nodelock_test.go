package nodelock

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func newLocks(t *testing.T, node, stateDir string) *Locks {
	t.Helper()
	l := New(node, stateDir, "pod x since 2026")
	t.Cleanup(l.Release)
	return l
}

// newNode returns a node name that no other test uses.
func newNode(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("node-%d-%s", os.Getpid(), filepath.Base(t.TempDir())+t.Name())
}

// occupy holds the lock of a network without being a daemon, and calls serve for each connection.
func occupy(t *testing.T, node, network string, serve func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("unix", socketName(node, network))
	check.Must(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				serve(conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
}

func TestAcquire(t *testing.T) {
	node := newNode(t)
	first, second := newLocks(t, node, "/state/one"), newLocks(t, node, "/state/two")
	for range 2 { // a second call is not a conflict
		check.Must(t, first.Acquire("net", QueryTimeout))
	}
	err := second.Acquire("net", time.Hour)
	check.Error(t, err, "net", node, "pod x since 2026", "/state/one", "--node-name")
	check.NoError(t, second.Acquire("other", 0))
	check.NoError(t, newLocks(t, node+"-2", "").Acquire("net", 0))
	first.Release()
	check.NoError(t, second.Acquire("net", 0))
}

func TestSocketName(t *testing.T) {
	if socketName("ab", "c") == socketName("a", "bc") {
		t.Error("node ab, network c and node a, network bc share a lock")
	}
}

// A request does not wait for the holder. It shows the description that a probe has read.
func TestSilentHolder(t *testing.T) {
	node := newNode(t)
	end := make(chan struct{})
	occupy(t, node, "blue", func(conn net.Conn) {
		<-end
		_, _ = fmt.Fprintln(conn, "PID 1, state directory /a")
	})
	l := newLocks(t, node, "/state")
	acquire := func(wait time.Duration, want string) {
		t.Helper()
		if err := l.Acquire("blue", wait); err == nil || !strings.Contains(err.Error(), "blue") || !strings.Contains(err.Error(), want) {
			t.Fatalf("got %v; want an error that names the network and contains %q", err, want)
		}
	}
	acquire(0, "not identified itself yet")
	if err := l.Acquire("default", 0); err != nil {
		t.Fatalf("the network of another pool: %v", err)
	}
	close(end)
	acquire(time.Hour, "/a")
	acquire(0, "/a")
}

func TestDescription(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(net.Conn)
		want  string
	}{
		"endless line": {
			func(conn net.Conn) {
				sent, part := 0, []byte(strings.Repeat("x", 64<<10))
				for {
					n, err := conn.Write(part)
					if sent += n; err != nil {
						break
					}
				}
				if sent > 1<<20 { // more than the kernel's buffers
					t.Errorf("the reader took %d bytes", sent)
				}
			},
			"does not identify itself",
		},
		"nothing":           {func(net.Conn) {}, fmt.Sprintf("PID %d", os.Getpid())},
		"terminal controls": {func(conn net.Conn) { _, _ = fmt.Fprint(conn, "PID 1\x1b[2J\u202e\n") }, `PID 1\x1b[2J\u202e`},
		"two lines":         {func(conn net.Conn) { _, _ = fmt.Fprint(conn, "PID 1\nPID 2\n") }, "PID 1)"},
		"earlier version":   {func(conn net.Conn) { _, _ = fmt.Fprint(conn, "PID 1, state directory /a\n") }, "(PID 1, state directory /a)"},
		"invalid UTF-8":     {func(conn net.Conn) { _, _ = fmt.Fprint(conn, "PID \xff\n") }, "PID \uFFFD"},
		"unfinished line":   {func(conn net.Conn) { _, _ = fmt.Fprint(conn, "PID 1") }, "does not identify itself"},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t)
			occupy(t, node, "net", c.serve)
			err := newLocks(t, node, "/state").Acquire("net", time.Hour)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("got %q; want one that contains %q", err, c.want)
			}
		})
	}
}

func TestHolderOfDirectory(t *testing.T) {
	long := "/state/" + strings.Repeat("ä", 1000)
	for _, dir := range []string{"/state/one", "/state, state directory /x", "/tab\there", long} {
		node := newNode(t)
		held := New(node, dir, strings.Repeat("p", 400))
		check.Must(t, held.Acquire("net", 0))
		who := Holder(node, "net")
		if !strings.HasPrefix(who, strings.Repeat("p", 400)) {
			t.Errorf("the description is %.100q; want the process first", who)
		}
		check.True(t, strings.HasSuffix(who, stateDirLabel+printableDir(dir)), "%.100q lacks the state directory %.100q", who, dir)
		held.Release()
	}
}
