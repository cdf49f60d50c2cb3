package nodelock

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const (
	squatterID = 70001
	// squatKey is the environment variable with the names that the process of TestSquatter takes.
	squatKey = "NODELOCK_TEST_SQUAT"
	// fullQueue begins the name of a socket whose queue of connections is full.
	fullQueue = "full:"
)

// TestSquatter is the process of squat.
//
//evidence:operate/security listening at the names of the node's lock
func TestSquatter(t *testing.T) {
	names := os.Getenv(squatKey)
	if names == "" {
		t.Skip("needs " + squatKey)
	}
	for name := range strings.FieldsSeq(names) {
		if name, ok := strings.CutPrefix(name, fullQueue); ok {
			fill(t, name)
			continue
		}
		l, err := net.Listen("unix", name)
		check.Must(t, err)
		defer l.Close()
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				_, _ = io.WriteString(conn, "PID 1, state directory /squatter\n")
				_ = conn.Close()
			}
		}()
	}
	fmt.Println("taken")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// fill listens at a name without accepting, and fills the queue.
func fill(t *testing.T, name string) {
	t.Helper()
	address := &unix.SockaddrUnix{Name: name}
	for i := range 3 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		check.Must(t, err)
		if i == 0 {
			check.Must(t, unix.Bind(fd, address))
			check.Must(t, unix.Listen(fd, 0))
		} else if err := unix.Connect(fd, address); err != nil && err != unix.EAGAIN {
			t.Fatal(err)
		}
	}
}

// squat starts an unprivileged process that listens at names until the test or stop ends it.
func squat(t *testing.T, names ...string) (stop func()) {
	t.Helper()
	check.Root(t)
	// The link works in spite of the modes of the directories above the program.
	c := exec.Command("/proc/self/exe", "-test.run=^TestSquatter$")
	c.Env = append(os.Environ(), squatKey+"="+strings.Join(names, " "))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: squatterID, Gid: squatterID}}
	c.Dir = "/"
	in, err := c.StdinPipe()
	check.Must(t, err)
	out, err := c.StdoutPipe()
	check.Must(t, err)
	check.Must(t, c.Start())
	stop = func() {
		_ = in.Close()
		_ = c.Wait()
	}
	t.Cleanup(stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "taken\n" {
		t.Fatalf("the unprivileged process printed %q, %v", line, err)
	}
	return stop
}

// An unprivileged process at a name of the lock is not a daemon, and does not hide one.
func TestUnprivilegedHolder(t *testing.T) {
	for name, form := range map[string]string{"responds": "%s", "full queue": fullQueue + "%s"} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t)
			first := socketName(node, "net")
			names := []string{fmt.Sprintf(form, first)}
			for i := range 20 {
				names = append(names, fmt.Sprintf(form+"/%d", first, i))
			}
			stop := squat(t, names...)
			if holder, err := find(first, "", time.Millisecond); holder != nil || err != nil {
				t.Fatalf("an unprivileged process is taken for a daemon, or stops one: %v, %v", holder, err)
			}
			one, two := newLocks(t, node, "/state/one"), newLocks(t, node, "/state/two")
			check.Must(t, one.Acquire("net", time.Millisecond))
			check.Must(t, one.Acquire("net", 0))
			check.Error(t, two.Acquire("net", QueryTimeout), "another daemon serves", "/state/one")
			if who := Holder(node, "net"); !strings.Contains(who, "/state/one") {
				t.Errorf("the holder is %q; want the first daemon", who)
			}
			stop() // the first name becomes free, but the lock does not
			check.Error(t, two.Acquire("net", QueryTimeout), "another daemon serves", "/state/one")
			one.Release()
			check.Must(t, two.Acquire("net", 0))
			check.Error(t, one.Acquire("net", QueryTimeout), "/state/two")
		})
	}
}

// A request does not wait for a process whose queue is full, and does not take it for free either.
//
//evidence:operate/security listening at the names of the node's lock
func TestFullQueue(t *testing.T) {
	node := newNode(t)
	squat(t, fullQueue+socketName(node, "net"))
	l := newLocks(t, node, "/state")
	check.Error(t, l.Acquire("net", 0), "try again later")
	check.Must(t, l.Acquire("net", time.Millisecond))
	check.Must(t, l.Acquire("net", 0))
}
