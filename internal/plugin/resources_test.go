package plugin

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// openFiles returns the descriptors of this process.
func openFiles(t *testing.T) []int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	check.Must(t, err)
	var open []int
	for _, e := range names {
		fd, err := strconv.Atoi(e.Name())
		check.Must(t, err)
		// That of the directory itself is closed by now.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open = append(open, fd)
		}
	}
	return open
}

// Wherever the descriptors run out, none of those opened so far is left open.
func TestDescriptorLimit(t *testing.T) {
	f := newFake(t)
	target := f.call("id")
	var usual unix.Rlimit
	check.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual))
	limit := func(n uint64) {
		check.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: usual.Max}))
	}
	defer limit(usual.Cur)
	before := openFiles(t)
	err := errors.New("not called")
	for n := uint64(len(before)); err != nil; n++ {
		if n > uint64(slices.Max(before))+64 {
			t.Fatalf("with 64 more descriptors: %v", err)
		}
		limit(n)
		err = f.run(call.VerbDel, target)
		limit(usual.Cur)
		var failed *call.Error
		if err != nil && (!errors.As(err, &failed) || failed.Outcome != call.NotStarted) {
			t.Errorf("with a limit of %d: %v", n, err)
		}
		after := openFiles(t)
		if slices.ContainsFunc(after, func(fd int) bool { return !slices.Contains(before, fd) }) {
			t.Fatalf("with a limit of %d descriptors %v are open, before %v", n, after, before)
		}
		before = after // one of an earlier test may have been closed meanwhile
	}
}
