// Package check has the assertions and the preparations that tests of several packages need.
package check

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Must ends the test with an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NoError fails the test with an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Error wants an error that contains each text.
func Error(t testing.TB, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("got no error; want one with %q", texts)
		return
	}
	Contains(t, err.Error(), texts...)
}

// Contains wants each text in another one.
func Contains(t testing.TB, all string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("%q lacks %q", all, text)
		}
	}
}

// Equal compares a value, which the label names.
func Equal[T any](t testing.TB, label string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got\n%+v; want\n%+v", label, got, want)
	}
}

// True fails the test with a message unless a condition is true.
func True(t testing.TB, condition bool, format string, args ...any) {
	t.Helper()
	if !condition {
		t.Errorf(format, args...)
	}
}

// Names returns the names in a directory, sorted and separated by spaces.
func Names(t testing.TB, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	Must(t, err)
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// Absent wants nothing at a path.
func Absent(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s exists (%v); want nothing", path, err)
	}
}

// FreeAddress returns a TCP address at which no process listens. Its loopback address belongs to this
// process: on 127.0.0.1 another process may get the port first.
func FreeAddress(t testing.TB) string {
	t.Helper()
	pid := os.Getpid()
	own := netip.AddrFrom4([4]byte{127, byte(64 + pid>>16&63), byte(pid >> 8), byte(pid)})
	l, err := net.Listen("tcp", netip.AddrPortFrom(own, 0).String())
	Must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// Root skips a test that needs root, unless it has it.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// Tmpfs mounts a new file system at a directory until the end of the test.
func Tmpfs(t testing.TB, dir, mode string) {
	t.Helper()
	Root(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode="+mode); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { Must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}
