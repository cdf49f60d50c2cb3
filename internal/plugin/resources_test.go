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
	f := newPrestartable(t)
	target := f.call("id")
	f.add(target)
	var usual unix.Rlimit
	check.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual))
	limit := func(n uint64) {
		check.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: usual.Max}))
	}
	defer limit(usual.Cur)
	before := openFiles(t)
	counts := map[int]bool{} // of prestarted processes
	for n := uint64(len(before)); len(counts) < 3; n++ {
		if n > uint64(slices.Max(before))+64 {
			t.Fatalf("with 64 more descriptors %v processes were prestarted; want none, one and two", counts)
		}
		limit(n)
		discard := f.runner.Prestart(call.Upcoming{Verb: call.VerbDel, Call: target}, call.Upcoming{Verb: call.VerbAdd, Call: target})
		pids := f.waiting("id")
		err := f.run(call.VerbDel, target)
		discard()
		limit(usual.Cur)
		counts[len(pids)] = true
		var failed *call.Error
		if err != nil && (!errors.As(err, &failed) || failed.Outcome != call.NotStarted) {
			t.Errorf("with a limit of %d: %v", n, err)
		}
		if after := openFiles(t); !slices.Equal(after, before) {
			t.Fatalf("with a limit of %d descriptors %v are open, before %v", n, after, before)
		}
		wantReaped(t, pids...)
	}
}
