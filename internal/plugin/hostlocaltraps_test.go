package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// countDocuments returns the number of JSON documents.
func countDocuments(t *testing.T, stdout []byte) int {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(stdout))
	for n := 0; ; n++ {
		var document json.RawMessage
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Trap "Own namespace": the CNI skeleton compares after the plugin has worked.
func TestRealHostLocalOwnNetNS(t *testing.T) {
	for name, pathOf := range ownNetNSPaths() {
		t.Run(name, func(t *testing.T) {
			f := newReal(t, dualStack)
			path := pathOf(t)
			if path == "" {
				return
			}
			target := f.call("id")
			target.Invocation.NetNS = path

			// With the refusal the plugin is not started.
			wantError(t, f.run(call.VerbAdd, target), call.NotStarted, "of this process")
			if _, err := os.Stat(f.leaseDir()); err == nil {
				t.Error("host-local has created its directory, want it not started")
			}
			o := f.opts
			o.NetNS = path
			if _, err := New(o); err == nil {
				t.Error("a runner with that --cni-netns was made, want it refused")
			}

			// Without it both addresses are allocated, and the result reports none.
			stdout, exit := f.byHand(call.VerbAdd, target, target.Invocation.Config)
			if n := countDocuments(t, stdout); exit != 1 || n != 2 {
				t.Errorf("got exit status %d and %d JSON documents by hand, want 1 and 2: %s", exit, n, stdout)
			}
			f.wantLeases("10.1.0.2", "fd00::2")

			// If it ran anyway, the runner would not take that for a refusal.
			target.ContainerID = "another"
			in, err := f.runner.prepare(call.VerbAdd, target.Invocation)
			if err != nil {
				t.Fatal(err)
			}
			target.NetNS = "" // which is not refused
			_, err = f.runner.execution(call.VerbAdd, target).exec(t.Context(), in)
			wantError(t, err, call.Unknown, "exit status 1, and stdout is not a CNI error")
		})
	}
}

// Trap "Own namespace", its last sentence.
func TestRealHostLocalNetNS(t *testing.T) {
	f := newReal(t, dualStack)
	target := f.call("id")
	if _, err := os.Stat(target.Invocation.NetNS); err == nil {
		t.Fatalf("%s exists, want a path that does not", target.Invocation.NetNS)
	}
	f.must(target, call.VerbAdd)
	target.Invocation.NetNS = ""
	wantError(t, f.run(call.VerbAdd, target), call.Refused, "CNI_NETNS")
	wantError(t, f.run(call.VerbCheck, target), call.Refused, "CNI_NETNS")
	f.must(target, call.VerbDel)
	f.wantLeases()
}

// Trap: host-local, killed between creating an address file and writing it.
func TestRealHostLocalEmptyLease(t *testing.T) {
	f := newReal(t, dualStack)
	target := f.call("id")
	f.writeLease("10.1.0.2", "")
	f.wantAdd(target, "10.1.0.3/24 via 10.1.0.1, fd00::2/120 via fd00::1")
	f.must(target, call.VerbCheck, call.VerbDel)
	if _, exit := f.byHand("GC", target, target.Invocation.Config); exit != 0 {
		t.Errorf("GC: exit status %d", exit)
	}
	f.wantLeases("10.1.0.2")
}

// Trap: host-local's roll-back is destructive.
func TestRealHostLocalRollback(t *testing.T) {
	f := newReal(t, `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120","rangeStart":"fd00::7","rangeEnd":"fd00::7"}]]}`)
	target := f.call("id")
	f.must(target, call.VerbAdd)
	f.wantLeases("10.1.0.2", "fd00::7")
	target.Requested = request("10.1.0.77")
	wantError(t, f.run(call.VerbAdd, target), call.Refused, "failed to allocate for range 1")
	f.wantLeases()
}

// Trap in the table: a request skips host-local's duplicate guard.
func TestRealHostLocalSecondRequest(t *testing.T) {
	f := newReal(t, dualStack)
	target := f.call("id")
	f.must(target, call.VerbAdd)
	target.Requested = request("10.1.0.77", "fd00::77")
	f.must(target, call.VerbAdd)
	f.wantLeases("10.1.0.2", "10.1.0.77", "fd00::2", "fd00::77")
	f.must(target, call.VerbDel)
	f.wantLeases()
}

// Trap in the table: DEL fails if the ipam configuration is broken.
func TestRealHostLocalDelBrokenConfig(t *testing.T) {
	f := newReal(t, dualStack)
	recorded := f.call("id")
	f.must(recorded, call.VerbAdd)
	current := recorded
	current.Invocation.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"net","ipam":{"type":"host-local","dataDir":"` + f.dir + `","ranges":[[{"subnet":"nonsense"}]]}}`)
	wantError(t, f.run(call.VerbDel, current), call.Refused, "")
	f.wantLeases("10.1.0.2", "fd00::2")
	f.must(recorded, call.VerbDel)
	f.wantLeases()
}

// Trap: unknown CNI_ARGS keys without IgnoreUnknown=1.
func TestRealHostLocalUnknownArgs(t *testing.T) {
	f := newReal(t, dualStack)
	target := f.call("id")
	target.Invocation.Args += ";K8S_POD_NAME=pod"
	f.must(target, call.VerbAdd) // with IgnoreUnknown=1, which every invocation has
	target.ContainerID, target.Invocation.Args = "another", "K8S_POD_NAME=pod"
	wantError(t, f.run(call.VerbAdd, target), call.Refused, "unknown args")
}

// Trap: its lock has no time limit.
func TestRealHostLocalLock(t *testing.T) {
	f := newReal(t, dualStack)
	target := f.call("id")
	f.writeLease("lock", "")
	lock, err := os.Open(filepath.Join(f.leaseDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	f.runner.opts.Timeout = 100 * time.Millisecond
	wantError(t, f.run(call.VerbAdd, target), call.Unknown, "--plugin-timeout")
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	f.runner.opts.Timeout = time.Minute
	f.must(target, call.VerbDel)
	f.wantLeases()
}

// Trap: CHECK only tests presence, so that a store older than our journal passes.
func TestRealHostLocalCheck(t *testing.T) {
	f := newReal(t, dualStack)
	target := f.call("id")
	target.PrevResult = f.add(target).Raw
	if err := os.Rename(filepath.Join(f.leaseDir(), "10.1.0.2"), filepath.Join(f.leaseDir(), "10.1.0.99")); err != nil {
		t.Fatal(err)
	}
	f.must(target, call.VerbCheck)
	if got := target.Invocation.Profile.CheckProves; got != "presence" {
		t.Errorf("by the profile CHECK proves %q, want \"presence\"", got)
	}
}

// Trap: GC (spec 1.1) by the container runtime. host-local's does nothing yet.
func TestRealHostLocalGC(t *testing.T) {
	f := newReal(t, dualStack)
	target := f.call("id")
	f.must(target, call.VerbAdd)
	f.gc(target, `[]`)
	f.wantLeases("10.1.0.2", "fd00::2")
}
