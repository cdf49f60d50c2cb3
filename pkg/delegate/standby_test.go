package delegate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// patient makes the scripted plugin one that waits for its configuration.
func patient(b *bench) {
	b.with(func(p *profile.Profile) { p.WaitsForConfig = true })
}

// standingBy are the process IDs that stand by for a container ID.
func (b *bench) standingBy(id string) []int {
	var pids []int
	if e := b.runner.expected.of(id); e != nil {
		for _, l := range e.waiting {
			pids = append(pids, l.child.pid)
		}
	}
	return pids
}

// awaitReading waits until a process waits for its standard input: a thread of it is
// in read(2) of descriptor 0.
func awaitReading(t *testing.T, pid int) {
	t.Helper()
	want := fmt.Sprintf("%d 0x0 ", unix.SYS_READ)
	for ; !(&watch{process: process{pid: pid, handle: none}}).hasEnded(); time.Sleep(time.Millisecond) {
		calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range calls {
			data, err := os.ReadFile(path)
			if os.IsPermission(err) {
				t.Skipf("where a process is cannot be seen here: %v", err)
			}
			if strings.HasPrefix(string(data), want) {
				return
			}
		}
	}
	t.Fatalf("process %d has ended and did not wait for its standard input", pid)
}

// gone fails the test if a process is still there.
func gone(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, 0); err == nil {
		t.Errorf("process %d is still there", pid)
	}
}

func expected(verb string, c call.Call) call.Upcoming { return call.Upcoming{Verb: verb, Call: c} }

// What the profiles say of them is true of the real ones: however far they get without
// a configuration, nothing has changed.
func TestARealPluginThatStandsByDoesNothing(t *testing.T) {
	const static = `{"type":"static","addresses":[{"address":"10.1.0.7/24"}]}`
	for name, c := range map[string]struct{ variable, ipam string }{
		"host-local":            {realPlugins, dualStack},
		"host-local of v1.4":    {oldPlugins, dualStack},
		"static":                {realPlugins, static},
		"dhcp without a daemon": {realPlugins, `{"type":"dhcp"}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := benchOf(t, c.variable, c.ipam, `{}`, func(o *Options) { o.NetNS = "/var/run/netns/none" })
			target := b.call("id")
			for _, verb := range []string{call.VerbDel, call.VerbAdd, call.VerbDel} {
				forget := b.runner.Prestart(expected(verb, target))
				pids := b.standingBy("id")
				if len(pids) != 1 {
					t.Fatalf("%d processes stand by, want 1", len(pids))
				}
				awaitReading(t, pids[0])
				entries, err := os.ReadDir(b.scripts)
				if err != nil || len(entries) != 1 { // the lock file alone
					t.Errorf("%s left %v, %v", verb, entries, err)
				}
				forget()
				gone(t, pids[0])
			}
		})
	}
}

func TestACallFindsItsProcessStandingBy(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	forget := b.runner.Prestart(expected(call.VerbDel, target), expected(call.VerbAdd, target))
	defer forget()
	pids := b.standingBy("id")
	if len(pids) != 2 {
		t.Fatalf("%d processes stand by, want 2", len(pids))
	}
	for _, pid := range pids {
		awaitReading(t, pid)
	}
	b.must(call.VerbDel, target)
	gone(t, pids[0])
	if got := b.standingBy("id"); len(got) != 1 || got[0] != pids[1] {
		t.Errorf("after DEL %v stand by, want %v", got, pids[1:])
	}
	if got := b.add(target); got != "10.1.0.2/24 via 10.1.0.1, fd00::2/120 via fd00::1" {
		t.Errorf("got %s", got)
	}
	gone(t, pids[1])
	b.holdsFiles("10.1.0.2", "fd00::2")
}

func TestTheWholeConfigurationReachesAProcessThatStandsBy(t *testing.T) {
	b := newBench(t)
	patient(b)
	target := b.call("id")
	b.add(target)
	target.PrevResult = json.RawMessage(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24"}]}`)
	b.must(call.VerbDel, target)
	want := b.stdin(call.VerbDel, "prevResult")
	b.add(target)
	forget := b.runner.Prestart(expected(call.VerbDel, target))
	defer forget()
	pids := b.standingBy("id")
	b.must(call.VerbDel, target)
	calls := b.calls(call.VerbDel)
	if last := calls[len(calls)-1]; len(pids) != 1 || last.PID != pids[0] {
		t.Errorf("the DEL was done by process %d, want %v", last.PID, pids)
	}
	if got := b.stdin(call.VerbDel, "prevResult"); got != want || want == "" {
		t.Errorf("it read %s, want %s", got, want)
	}
	b.stores()
}

func TestWhatIsNotCalledForIsEndedAndLeavesTheLockFree(t *testing.T) {
	b := newBench(t)
	patient(b)
	target := b.call("id")
	forget := b.runner.Prestart(expected(call.VerbDel, target), expected(call.VerbAdd, target))
	pids := b.standingBy("id")
	lock, ours, err := b.runner.locks.tryTake("id")
	if err != nil || ours {
		t.Fatalf("the lock is ours: %v, %v; want those who stand by to have it", ours, err)
	}
	lock.file.Close()
	forget()
	for _, pid := range pids {
		gone(t, pid)
	}
	if len(pids) != 2 || b.runner.expected.of("id") != nil {
		t.Errorf("%v stood by, and after forget %v do", pids, b.standingBy("id"))
	}
	lock, ours, err = b.runner.locks.tryTake("id")
	if err != nil || !ours {
		t.Fatalf("the lock is ours: %v, %v", ours, err)
	}
	lock.release()
	if worked := append(b.calls(call.VerbDel), b.calls(call.VerbAdd)...); len(worked) > 0 {
		t.Errorf("a plugin that was told nothing has worked: %v", worked)
	}
}

func TestACallThatWasNotExpectedHasAProcessOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bench, call.Call) call.Call
		// stays tells that what stood by is left for whoever it is for.
		stays bool
	}{
		"with another environment": {func(_ *bench, c call.Call) call.Call { c.Invocation.Args += ";MORE=1"; return c }, true},
		"with another program": {func(b *bench, c call.Call) call.Call {
			other := filepath.Join(b.bin, "moved")
			if err := os.Symlink(os.Getenv(scriptedBinary), other); err != nil {
				b.t.Fatal(err)
			}
			if err := os.Symlink(b.scripts, other+".d"); err != nil {
				b.t.Fatal(err)
			}
			c.Invocation.Binary = other
			return c
		}, true},
		"with more to be told than a pipe takes at once": {func(_ *bench, c call.Call) call.Call {
			c.PrevResult = json.RawMessage(`{"cniVersion":"1.1.0","ips":[],"dns":{"domain":"` + strings.Repeat("x", maxTold) + `"}}`)
			return c
		}, true},
		"because what stood by has died": {func(b *bench, c call.Call) call.Call {
			pid := b.standingBy("id")[0]
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				b.t.Fatal(err)
			}
			var info unix.Siginfo
			if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
				b.t.Fatal(err)
			}
			return c
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			patient(b)
			target := b.call("id")
			b.add(target)
			forget := b.runner.Prestart(expected(call.VerbDel, target))
			pids := b.standingBy("id")
			if len(pids) != 1 {
				t.Fatalf("%v stand by, want one", pids)
			}
			b.must(call.VerbDel, c.change(b, target))
			if last := b.calls(call.VerbDel); len(last) != 1 || last[0].PID == pids[0] {
				t.Errorf("the DELs were %+v, want one by another process than %d", last, pids[0])
			}
			b.stores()
			if got := b.standingBy("id"); (len(got) == 1) != c.stays {
				t.Errorf("%v stand by after the call", got)
			}
			forget()
			gone(t, pids[0])
		})
	}
}

func TestNothingStandsBy(t *testing.T) {
	hold := func(b *bench) {
		lock, err := b.runner.locks.take(b.t.Context(), "id")
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(lock.release)
	}
	for name, change := range map[string]func(*bench, *call.Call){
		"of a plugin that does not wait":         func(_ *bench, c *call.Call) { c.Invocation.Profile.WaitsForConfig = false },
		"in a namespace that is made for a call": func(_ *bench, c *call.Call) { c.Invocation.NetNS = EphemeralNetNS },
		"in our own namespace":                   func(_ *bench, c *call.Call) { c.Invocation.NetNS = "/proc/self/ns/net" },
		"that could not be told all": func(_ *bench, c *call.Call) {
			c.Invocation.Config = append(c.Invocation.Config, make([]byte, maxTold)...)
		},
		"while a process of an earlier life works": func(b *bench, _ *call.Call) { hold(b) },
		"where the plugin cannot be started": func(_ *bench, c *call.Call) {
			c.Invocation.Plugin, c.Invocation.Binary = "gone", c.Invocation.Binary+"-gone"
		},
		"for an ADD that the plugin cannot be asked": func(b *bench, c *call.Call) {
			c.Requested = asked(addrs("10.1.0.7", "10.1.0.8")...)
			c.Invocation.Profile.Requests = nil
		},
		"where the lock file of calls cannot be opened": func(b *bench, _ *call.Call) { b.runner.locks.path = filepath.Join(b.bin, "no", "folder") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			patient(b)
			target := b.call("id")
			change(b, &target)
			before := openFiles(t)
			forget := b.runner.Prestart(expected(call.VerbAdd, target))
			if got := b.standingBy("id"); len(got) != 0 {
				t.Errorf("%v stand by", got)
			}
			forget()
			if after := openFiles(t); !slices.Equal(after, before) {
				t.Errorf("descriptors %v are open, and were %v before", after, before)
			}
		})
	}
	newBench(t).runner.Prestart()()
}

func TestOnlyCallsOfOneContainerIDStandBy(t *testing.T) {
	b := newBench(t)
	patient(b)
	forget := b.runner.Prestart(expected(call.VerbDel, b.call("one")), expected(call.VerbAdd, b.call("other")))
	defer forget()
	if one, other := b.standingBy("one"), b.standingBy("other"); len(one) != 1 || len(other) != 0 {
		t.Errorf("%v and %v stand by, want one and none", one, other)
	}
}

// The death of the sidecar ends what it would have told: the plugin reads the end of
// its input, and a configuration that is none.
func TestAProcessThatStandsByOutlivesUsOnlyToFail(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	forget := b.runner.Prestart(expected(call.VerbAdd, target))
	l := &b.runner.expected.of("id").waiting[0]
	awaitReading(t, l.child.pid)
	if err := unix.Close(l.input); err != nil { // as the kernel does when we are killed
		t.Fatal(err)
	}
	l.input = none
	end := l.finish()
	b.runner.expected.of("id").waiting = nil
	forget()
	if end.exit.success() || !strings.Contains(string(end.stdout), `"code"`) {
		t.Errorf("it ended with %v and %s, want an error of CNI", end.exit, end.stdout)
	}
	if entries, err := os.ReadDir(filepath.Join(b.scripts, "net")); err == nil {
		t.Errorf("it left %v", entries)
	}
}
