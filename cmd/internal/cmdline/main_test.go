package cmdline

import (
	"io"
	"strings"
	"syscall"
	"testing"
)

// send sends a signal to this process, which would terminate it by default.
func send(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), s); err != nil {
		t.Fatal(err)
	}
}

func TestHangups(t *testing.T) {
	hangups, stop := Hangups()
	defer stop()
	for range 2 {
		send(t, syscall.SIGHUP)
		if got := <-hangups; got != syscall.SIGHUP {
			t.Errorf("got %s", got)
		}
	}
}

func TestDumpGoroutines(t *testing.T) {
	r, w := io.Pipe()
	stop := DumpGoroutines(w)
	for range 2 {
		send(t, syscall.SIGUSR1)
		dump := make([]byte, 1<<20)
		n, err := r.Read(dump)
		if err != nil || !strings.HasPrefix(string(dump[:n]), "goroutine ") || !strings.Contains(string(dump[:n]), "TestDumpGoroutines") {
			t.Errorf("got %q, %v; want the stack of this test", dump[:n], err)
		}
	}
	stop()
}
