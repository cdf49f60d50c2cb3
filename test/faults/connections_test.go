package faults

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// answered is a response, or the error without one.
type answered struct {
	harness.Response
	err error
}

// requestOn sends a request on an open connection, which must stay open, and returns the response.
func requestOn(conn net.Conn, request string) (harness.Response, error) {
	if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", request); err != nil {
		return harness.Response{}, err
	}
	a, closes, err := readResponse(conn)
	if closes {
		err = errors.Join(err, errors.New("the server closes the connection"))
	}
	return a, err
}

// readResponse reads the response to a request that was sent on a connection, and reports whether the
// server closes the connection after it.
func readResponse(conn net.Conn) (a harness.Response, closes bool, err error) {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return a, false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return harness.Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, resp.Close, err
}

// get requests a path on an open connection.
func get(conn net.Conn, path string) error {
	a, err := requestOn(conn, "GET "+path)
	if err == nil && a.Status != http.StatusOK {
		err = fmt.Errorf("answered %s; want 200", a)
	}
	return err
}

func getList(conn net.Conn) error { return get(conn, "/v1/ipam") }

// needDescriptors skips the test if the hard limit of descriptors is lower. The Go runtime raises
// the soft limit to it, also in the daemon.
func needDescriptors(t *testing.T, files uint64) {
	t.Helper()
	var limit syscall.Rlimit
	check.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Max < files {
		harness.Skipf(t, "%d descriptors are needed, the limit is %d (ulimit -Hn)", files, limit.Max)
	}
}

// connect opens that many connections, some concurrently, and calls begin for each.
func connect(t *testing.T, socket string, connections int, begin func(net.Conn) error) []net.Conn {
	t.Helper()
	all := make([]net.Conn, connections)
	var g errgroup.Group
	g.SetLimit(4) // fewer than the lists that one user may request at a time
	for i := range all {
		g.Go(func() error {
			conn, err := dial(socket)
			if err != nil {
				return err
			}
			t.Cleanup(func() { conn.Close() })
			all[i] = conn
			return begin(conn)
		})
	}
	check.Must(t, g.Wait())
	return all
}

// dial retries while the listener's backlog is full (connect(2), EAGAIN).
func dial(socket string) (net.Conn, error) {
	conn, err := net.Dial("unix", socket)
	for errors.Is(err, syscall.EAGAIN) {
		conn, err = net.Dial("unix", socket)
	}
	if err != nil {
		return nil, err
	}
	// Much longer than the server's own limits.
	return conn, conn.SetDeadline(time.Now().Add(5 * time.Minute))
}

// allocateInBackground allocates for that many owners concurrently.
func allocateInBackground(s *harness.Daemon, name string, owners int) <-chan answered {
	answers := make(chan answered, owners)
	for i := range owners {
		go func() {
			path := fmt.Sprintf("/v1/ipam?owner=%s-%d", name, i)
			a, err := s.Try(http.MethodPost, path)
			for errors.Is(err, syscall.EAGAIN) {
				a, err = s.Try(http.MethodPost, path)
			}
			answers <- answered{a, err}
		}()
	}
	return answers
}

// sockets returns the fields of the daemon's open sockets of a protocol (proc_pid_net(5)).
func sockets(t *testing.T, s *harness.Daemon, protocol string) [][]string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", s.PID(), protocol))
	if os.IsNotExist(err) {
		return nil // the kernel lacks IPv6
	}
	check.Must(t, err)
	inode := 9
	if protocol == "unix" {
		inode = 6
	}
	open := openFiles(t, s)
	var found [][]string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > inode && slices.Contains(open, "socket:["+f[inode]+"]") {
			found = append(found, f)
		}
	}
	return found
}

// openFiles returns the targets of the daemon's descriptors (proc_pid_fd(5)).
func openFiles(t *testing.T, s *harness.Daemon) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.PID())
	entries, err := os.ReadDir(dir)
	check.Must(t, err)
	var open []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // closed since the directory was read
		}
		check.Must(t, err)
		open = append(open, target)
	}
	return open
}

// waitClosed waits until the daemon has no more descriptors than before.
func waitClosed(t *testing.T, s *harness.Daemon, before []string) {
	t.Helper()
	harness.Eventually(t, "every descriptor to be closed", func() error {
		if now := openFiles(t, s); len(now) > len(before) {
			return fmt.Errorf("%d are open, %d were before:\n%q\n%q", len(now), len(before), now, before)
		}
		return nil
	})
}

// peakMemory returns the daemon's peak resident memory in bytes.
func peakMemory(t *testing.T, s *harness.Daemon) int { return memory(t, s, "VmHWM") }

// memory returns a figure of the daemon's memory in bytes (proc_pid_status(5)).
func memory(t *testing.T, s *harness.Daemon, field string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	check.Must(t, err)
	_, value, _ := strings.Cut(string(data), "\n"+field+":")
	var kib int
	_, err = fmt.Sscanf(value, "%d kB", &kib)
	check.Must(t, err)
	return kib << 10
}

// wantGrowth wants the peak of the daemon's memory to have grown by at most a limit.
func wantGrowth(t *testing.T, s *harness.Daemon, before, limit int) {
	t.Helper()
	grown := peakMemory(t, s) - before
	t.Logf("the daemon's memory grew by %d MiB", grown>>20)
	if grown > limit {
		t.Errorf("the daemon's memory grew by %d KiB; want at most %d", grown>>10, limit>>10)
	}
}

// pausableHostLocal is the real host-local whose ADD for an owner, unlike one for a pod, waits for the
// file "$0.go". It logs the beginning and end of each ADD, DEL and CHECK.
const pausableHostLocal = `#!/bin/sh
case "$CNI_COMMAND $CNI_CONTAINERID" in *" delegated-ipam-config-"*) exec "$0.real" ;; ADD*|DEL*|CHECK*) ;; *) exec "$0.real" ;; esac
echo "begin $CNI_COMMAND" >>"$0.log"
case "$CNI_COMMAND $CNI_CONTAINERID" in "ADD cilium-agent-"*)
	until [ -e "$0.go" ]; do sleep 0.02; done ;;
esac
"$0.real"
code=$?
echo "end $CNI_COMMAND" >>"$0.log"
exit $code
`

// pausablePlugin is the plugin of a node whose ADDs for owners can be paused.
type pausablePlugin struct{ path string }

// installPausable wraps the node's host-local, which is not paused.
func installPausable(t *testing.T, n *harness.Node) pausablePlugin {
	t.Helper()
	p := pausablePlugin{n.WrapPlugin(t, "host-local", pausableHostLocal)}
	p.resume(t)
	return p
}

func (p pausablePlugin) resume(t *testing.T) {
	t.Helper()
	check.Must(t, os.WriteFile(p.path+".go", nil, 0o600))
}

func (p pausablePlugin) pause(t *testing.T) {
	t.Helper()
	check.Must(t, os.Remove(p.path+".go"))
}

// waitPausedADDs waits until that many ADDs have begun and not ended.
func (p pausablePlugin) waitPausedADDs(t *testing.T, want int) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d paused ADDs", want), func() error {
		log, _ := os.ReadFile(p.path + ".log") // missing before the first call
		got := bytes.Count(log, []byte("begin ADD\n")) - bytes.Count(log, []byte("end ADD\n"))
		if got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// interruptADD pauses the ADD of the owner "interrupted-0", kills the daemon, and wants no response.
func (p pausablePlugin) interruptADD(t *testing.T, s *harness.Daemon, kill func()) {
	t.Helper()
	p.pause(t)
	pending := allocateInBackground(s, "interrupted", 1)
	p.waitPausedADDs(t, 1)
	kill()
	if a := <-pending; a.err == nil {
		t.Fatalf("the killed daemon answered %s", a.Response)
	}
}

// most returns the largest number of calls that had begun and not ended.
func (p pausablePlugin) most(t *testing.T) int {
	t.Helper()
	log, err := os.ReadFile(p.path + ".log")
	check.Must(t, err)
	running, most := 0, 0
	for line := range strings.Lines(string(log)) {
		switch event, _, _ := strings.Cut(line, " "); event {
		case "begin":
			running++
		case "end":
			running--
		}
		most = max(most, running)
	}
	return most
}
