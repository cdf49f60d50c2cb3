package plugin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRealHostLocalVerbs(t *testing.T) {
	for name, c := range map[string]struct {
		plugins, version string
		status           bool
	}{
		"newest": {"", "1.1.0", true},
		"v1.9.1": {harness.PluginsV19, "1.1.0", true},
		"v1.4.0": {harness.PluginsV14, "1.0.0", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRealOf(t, c.plugins, dualStack)
			target := f.call("id")
			if got := target.Invocation; got.CNIVersion != c.version || got.HasStatus() != c.status || !got.HasCheck() {
				t.Errorf("got CNI version %s with STATUS %v and CHECK %v, want %s with %v and true",
					got.CNIVersion, got.HasStatus(), got.HasCheck(), c.version, c.status)
			}
			got := f.wantAdd(target, firstIPs)
			if want := `{"cniVersion":"` + c.version + `",`; !strings.HasPrefix(string(got.Raw), want) {
				t.Errorf("got the raw result %s, want it to begin %s", got.Raw, want)
			}
			wantError(t, f.run(call.VerbAdd, target), call.Refused, "duplicate allocation is not allowed")
			target.PrevResult = []byte(goodResult) // of CNI 1.1.0, also for the old one
			f.must(target, call.VerbCheck, call.VerbStatus, call.VerbDel, call.VerbDel)
			f.wantLeases()
			err := f.run(call.VerbCheck, target)
			if wantError(t, err, call.Refused, "Failed to find address"); !call.IsLost(target.Invocation, err) {
				t.Errorf("got not lost after a DEL: %v", err)
			}
		})
	}
}

// Trap "Own namespace": the CNI skeleton compares after the plugin has worked.
func TestRealHostLocalOwnNetNS(t *testing.T) {
	for name, pathOf := range map[string]func(t *testing.T) string{
		"self":       func(*testing.T) string { return "/proc/self/ns/net" },
		"bind mount": bindOwnNetNS,
	} {
		t.Run(name, func(t *testing.T) {
			f := newReal(t, dualStack)
			path := pathOf(t)
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

			// Without it both addresses are allocated, and an error follows their result.
			stdout, exit := f.byHand(call.VerbAdd, target)
			if out := string(stdout); exit != 1 || !strings.Contains(out, `"10.1.0.2/24"`) || !strings.Contains(out, `"code": 8`) {
				t.Errorf("got exit status %d and %s by hand, want 1, a result and an error", exit, out)
			}
			f.wantLeases("10.1.0.2", "fd00::2")

			// If it ran anyway, the runner would not take that for a refusal.
			target.ContainerID = "another"
			in, err := f.runner.prepare(call.VerbAdd, target.Invocation)
			check.Must(t, err)
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

// Trap: host-local, killed between creating an address file and writing it. DEL does not free the address;
// from v1.10.0 on a GC does, with all that it does not list. The GC of v1.9.1, of the same CNI versions,
// frees nothing.
func TestRealHostLocalEmptyLease(t *testing.T) {
	ours := call.Attachment{ContainerID: "id", IfName: "eth0"}
	for name, c := range map[string]struct {
		plugins string
		valid   []call.Attachment
		kept    []string
		lost    bool
	}{
		"newest, listed":     {"", []call.Attachment{ours}, []string{"10.1.0.3", "fd00::2"}, false},
		"newest, not listed": {"", nil, nil, true},
		"v1.9.1, not listed": {harness.PluginsV19, nil, []string{"10.1.0.2", "10.1.0.3", "fd00::2"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRealOf(t, c.plugins, dualStack)
			target := f.call("id")
			f.writeLease("10.1.0.2", "")
			f.wantAdd(target, "10.1.0.3/24 via 10.1.0.1, fd00::2/120 via fd00::1")
			f.gc(target, c.valid...)
			f.wantLeases(c.kept...)
			if err := f.run(call.VerbCheck, target); call.IsLost(target.Invocation, err) != c.lost {
				t.Errorf("CHECK returned %v; want lost %v", err, c.lost)
			}
			f.writeLease("10.1.0.2", "")
			f.must(target, call.VerbDel)
			f.wantLeases("10.1.0.2")
		})
	}
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
	check.Must(t, err)
	defer lock.Close()
	check.Must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	f.runner.opts.Timeout = 100 * time.Millisecond
	wantError(t, f.run(call.VerbAdd, target), call.Unknown, "--plugin-timeout")
	check.Must(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	f.runner.opts.Timeout = time.Minute
	f.must(target, call.VerbDel)
	f.wantLeases()
}
