package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// leaveDescendant makes a verb start a descendant in a separate session, and continue with a shell
// command. The result returns the descendant after a call.
func (f *fixture) leaveDescendant(verb, then string) (pid func() int) {
	f.t.Helper()
	file := filepath.Join(f.dir, "descendant")
	shell := fmt.Sprintf("setsid sh -c 'exec >/dev/null 2>&1; echo $$ >%[1]s.new; mv %[1]s.new %[1]s; exec sleep 3600' & until [ -e %[1]s ]; do :; done; %[2]s", file, then)
	f.script(verb, fmt.Sprintf(`{"shell":%q}`, shell))
	return func() int {
		f.t.Helper()
		text, err := os.ReadFile(file)
		check.Must(f.t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		check.Must(f.t, err)
		f.t.Cleanup(func() { _ = unix.Kill(n, unix.SIGKILL) })
		return n
	}
}

// runs reports whether a process runs; a zombie does not.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// A descendant in another session gets no signal that is sent to the group, and may still do the work
// of its call. The next call on the container ID waits for it, and terminates it.
func TestDescendantKeepsLock(t *testing.T) {
	for name, c := range map[string]struct{ then, want string }{
		"the plugin exceeds a limit": {"head -c 2000000 /dev/zero; exec sleep 3600", "printed more than"},
		"the plugin has no result":   {"exit 3", "nothing on stdout"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			target := f.call("id")
			pid := f.leaveDescendant(call.VerbAdd, c.then)
			wantError(t, f.run(call.VerbAdd, target), call.Unknown, c.want)
			if !runs(pid()) {
				t.Fatal("the descendant has ended with the plugin")
			}
			f.wantLocked("id")
			f.runner.locks.Timeout = time.Millisecond
			f.must(target, call.VerbDel)
			if runs(pid()) {
				t.Error("the next call has run while the descendant still ran")
			}
			f.wantUnlocked("id")
		})
	}
}
