package delegate

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// openFiles are our descriptors.
func openFiles(t *testing.T) []int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []int
	for _, e := range names {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		// That of the folder itself is closed by now.
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open = append(open, fd)
		}
	}
	return open
}

// Wherever the descriptors run out, nothing of what was made ready so far is left open.
func TestWhereDescriptorsRunOutNothingOfACallIsLeft(t *testing.T) {
	b := newBench(t)
	patient(b)
	target := b.call("id")
	b.add(target)
	var usual unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: usual.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer limit(usual.Cur)
	before := openFiles(t)
	stood := map[int]bool{}
	for n := uint64(len(before)); len(stood) < 3; n++ {
		if n > uint64(slices.Max(before))+64 {
			t.Fatalf("with 64 descriptors more %v processes stood by; want none, one and two", stood)
		}
		limit(n)
		forget := b.runner.Prestart(expected(call.VerbDel, target), expected(call.VerbAdd, target))
		pids := b.standingBy("id")
		err := b.run(call.VerbDel, target)
		forget()
		limit(usual.Cur)
		stood[len(pids)] = true
		var failed *call.Error
		if err != nil && (!errors.As(err, &failed) || failed.Outcome != call.NotStarted) {
			t.Errorf("with a limit of %d: %v", n, err)
		}
		if after := openFiles(t); !slices.Equal(after, before) {
			t.Fatalf("with a limit of %d descriptors %v are open, and were %v before", n, after, before)
		}
		for _, pid := range pids {
			gone(t, pid)
		}
	}
}
