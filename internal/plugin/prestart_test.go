package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/internal/process"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// newPrestartable returns a fixture of a fake that waits for its configuration.
func newPrestartable(t *testing.T, change ...func(*Options)) *fixture {
	t.Helper()
	f := newFake(t, change...)
	f.setProfile(func(p *profile.Profile) { p.WaitsForConfig = true })
	return f
}

// prestart starts the processes of calls of the verbs, which must be possible for each, and returns
// their process IDs.
func (f *fixture) prestart(c call.Call, verbs ...string) (pids []int, discard func()) {
	f.t.Helper()
	var calls []call.Upcoming
	for _, verb := range verbs {
		calls = append(calls, call.Upcoming{Verb: verb, Call: c})
	}
	discard = f.runner.Prestart(calls...)
	if pids = f.waiting(c.ContainerID); len(pids) != len(verbs) {
		discard()
		f.t.Fatalf("%v were prestarted, want %d", pids, len(verbs))
	}
	return pids, discard
}

// waiting returns the process IDs of the prestarted processes of a container ID.
func (f *fixture) waiting(id string) []int {
	var pids []int
	if p := f.runner.prestartedOf(interfaceOf(f.call(id).Invocation)); p != nil {
		for _, w := range p.waiting {
			pids = append(pids, w.PID())
		}
	}
	return pids
}

// awaitReading waits until a process waits for its standard input: a thread of it is in read(2) of
// descriptor 0.
func awaitReading(t *testing.T, pid int) {
	t.Helper()
	want := fmt.Sprintf("%d 0x0 ", unix.SYS_READ)
	for ; unix.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		check.Must(t, err)
		for _, path := range calls {
			data, err := os.ReadFile(path)
			if os.IsPermission(err) {
				t.Skipf("the system calls of a process cannot be read here: %v", err)
			}
			if strings.HasPrefix(string(data), want) {
				return
			}
		}
	}
	t.Fatalf("process %d has ended and did not wait for its standard input", pid)
}

// wantReaped fails the test for each process that still exists.
func wantReaped(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); err == nil {
			t.Errorf("process %d still exists", pid)
		}
	}
}

// wantOnlyDel fails the test if there was not exactly one DEL, and whether that was done by process
// pid.
func (f *fixture) wantOnlyDel(pid int, byIt bool) {
	f.t.Helper()
	if dels := f.calls(call.VerbDel); len(dels) != 1 || (dels[0].PID == pid) != byIt {
		f.t.Errorf("the DELs were %+v, want one, by process %d: %v", dels, pid, byIt)
	}
	f.wantHeld()
}

// What their profiles say is true of the real plugins: however far they get without a configuration,
// nothing has changed.
func TestRealPluginPrestarted(t *testing.T) {
	const static = `{"type":"static","addresses":[{"address":"10.1.0.7/24"}]}`
	for name, c := range map[string]struct{ plugins, ipam string }{
		"host-local":      {"", dualStack},
		"host-local v1.4": {harness.PluginsV14, dualStack},
		"static":          {"", static},
		"dhcp, no daemon": {"", `{"type":"dhcp"}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRealOf(t, c.plugins, c.ipam, func(o *Options) { o.NetNS = "/var/run/netns/none" })
			target := f.call("id")
			for _, verb := range []string{call.VerbDel, call.VerbAdd} {
				pids, discard := f.prestart(target, verb)
				awaitReading(t, pids[0])
				entries, err := os.ReadDir(f.dir)
				if err != nil || len(entries) != 1 { // the lock file
					t.Errorf("%s left %v, %v", verb, entries, err)
				}
				discard()
				wantReaped(t, pids...)
			}
		})
	}
}

func TestPrestart(t *testing.T) {
	f := newReal(t, dualStack)
	target := f.call("id")
	pids, discard := f.prestart(target, call.VerbDel, call.VerbAdd)
	defer discard()
	for _, pid := range pids {
		awaitReading(t, pid)
	}
	f.must(target, call.VerbDel)
	wantReaped(t, pids[0])
	if got := f.waiting("id"); len(got) != 1 || got[0] != pids[1] {
		t.Errorf("after DEL %v wait, want %v", got, pids[1:])
	}
	f.wantAdd(target, firstIPs)
	wantReaped(t, pids[1])
	f.wantLeases("10.1.0.2", "fd00::2")
}

func TestPrestartedGetsWholeConfig(t *testing.T) {
	f := newPrestartable(t)
	target := f.call("id")
	f.add(target)
	target.PrevResult = json.RawMessage(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24"}]}`)
	f.must(target, call.VerbDel)
	want := f.stdin(call.VerbDel, "prevResult")
	f.add(target)
	pids, discard := f.prestart(target, call.VerbDel)
	defer discard()
	f.must(target, call.VerbDel)
	if got := f.lastCall(call.VerbDel).PID; got != pids[0] {
		t.Errorf("the last DEL was by process %d, want %d", got, pids[0])
	}
	if got := f.stdin(call.VerbDel, "prevResult"); got != want || want == "" {
		t.Errorf("it read %s, want %s", got, want)
	}
	f.wantHeld()
}

func TestPrestartDiscard(t *testing.T) {
	f := newPrestartable(t)
	target := f.call("id")
	pids, discard := f.prestart(target, call.VerbDel, call.VerbAdd)
	f.wantLocked("id")
	discard()
	wantReaped(t, pids...)
	if f.runner.prestartedOf(interfaceOf(target.Invocation)) != nil {
		t.Errorf("after discard %v wait", f.waiting("id"))
	}
	f.wantUnlocked("id")
	f.wantCalls(call.VerbDel, 0)
	f.wantCalls(call.VerbAdd, 0)
}

// A call that differs from the prestarted one, or whose process has ended, starts its own process.
func TestPrestartedNotUsed(t *testing.T) {
	for name, change := range map[string]func(*fixture, *call.Call){
		"other environment": func(_ *fixture, c *call.Call) { c.Invocation.Args += ";MORE=1" },
		"other executable": func(f *fixture, c *call.Call) {
			c.Invocation.Plugin, c.Invocation.Binary = "moved", filepath.Join(f.bin, "moved")
			check.Must(f.t, os.Symlink(os.Getenv(harness.EnvScripted), c.Invocation.Binary))
			check.Must(f.t, os.Symlink(f.dir, c.Invocation.Binary+".d"))
		},
		"longer configuration than a pipe takes": func(_ *fixture, c *call.Call) {
			c.PrevResult = json.RawMessage(`{"cniVersion":"1.1.0","ips":[],"dns":{"domain":"` + strings.Repeat("x", process.MaxConfig) + `"}}`)
		},
		"process has ended": func(f *fixture, _ *call.Call) {
			pid := f.waiting("id")[0]
			check.Must(f.t, unix.Kill(pid, unix.SIGKILL))
			for unix.Kill(pid, 0) == nil { // until it is reaped, and the pipe has no reader
				time.Sleep(time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newPrestartable(t)
			target := f.call("id")
			f.add(target)
			pids, discard := f.prestart(target, call.VerbDel)
			change(f, &target)
			f.must(target, call.VerbDel)
			f.wantOnlyDel(pids[0], false)
			if got := f.waiting("id"); len(got) != 1 {
				t.Errorf("%v wait after the call, want that which was not used", got)
			}
			discard()
			wantReaped(t, pids...)
		})
	}
}

func TestPrestartNotPossible(t *testing.T) {
	for name, change := range map[string]func(*fixture, *call.Call){
		"plugin does not wait": func(_ *fixture, c *call.Call) { c.Invocation.Profile.WaitsForConfig = false },
		"our own namespace":    func(_ *fixture, c *call.Call) { c.Invocation.NetNS = "/proc/self/ns/net" },
		"long configuration": func(_ *fixture, c *call.Call) {
			c.Invocation.Config = append(c.Invocation.Config, make([]byte, process.MaxConfig)...)
		},
		"ID is locked": func(f *fixture, _ *call.Call) {
			lock, err := f.runner.locks.Lock(f.t.Context(), "id")
			check.Must(f.t, err)
			f.t.Cleanup(lock.Unlock)
		},
		"missing plugin": func(_ *fixture, c *call.Call) {
			c.Invocation.Plugin, c.Invocation.Binary = "gone", c.Invocation.Binary+"-gone"
		},
		"request not possible": func(_ *fixture, c *call.Call) {
			c.Requested = request("10.1.0.7", "10.1.0.8")
			c.Invocation.Profile.Requests = nil
		},
		"lock file not opened": func(f *fixture, _ *call.Call) { f.runner.locks.Path = filepath.Join(f.bin, "no", "directory") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newPrestartable(t)
			target := f.call("id")
			change(f, &target)
			before := openFiles(t)
			discard := f.runner.Prestart(call.Upcoming{Verb: call.VerbAdd, Call: target})
			if got := f.waiting("id"); len(got) != 0 {
				t.Errorf("%v were prestarted", got)
			}
			discard()
			if after := openFiles(t); !slices.Equal(after, before) {
				t.Errorf("descriptors %v are open, before %v", after, before)
			}
		})
	}
	newFake(t).runner.Prestart()()
}

func TestPrestartOneContainerID(t *testing.T) {
	f := newPrestartable(t)
	defer f.runner.Prestart(call.Upcoming{Verb: call.VerbDel, Call: f.call("one")}, call.Upcoming{Verb: call.VerbAdd, Call: f.call("other")})()
	if one, other := f.waiting("one"), f.waiting("other"); len(one) != 1 || len(other) != 0 {
		t.Errorf("%v and %v were prestarted, want one and none", one, other)
	}
}

// The calls for two interfaces of a container run at the same time: the one neither uses the processes of
// the other, nor its lock.
func TestPrestartOfAnotherInterface(t *testing.T) {
	f := newPrestartable(t)
	target := f.call("id")
	_, discard := f.prestart(target, call.VerbAdd)
	other := target
	other.IfName = "eth1"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := f.runner.lockID(ctx, other.Invocation); err == nil {
		t.Error("the call for eth1 got the lock of the one for eth0")
	}
	if got := f.waiting("id"); len(got) != 1 {
		t.Errorf("%v wait for the call for eth0", got)
	}
	discard()
	f.must(other, call.VerbAdd)
}

// Trap: an attachment keeps its ID when the network or the interface is renamed. Its calls share the lock.
func TestPrestartAfterRename(t *testing.T) {
	f := newPrestartable(t)
	target := f.call(containerid.For("router", "node", "net"))
	_, discard := f.prestart(target, call.VerbDel)
	defer discard()
	renamed := target
	renamed.IfName, renamed.Network = "eth1", "other"
	_, unlock, err := f.runner.lockID(t.Context(), renamed.Invocation)
	check.Must(t, err)
	unlock()
}
