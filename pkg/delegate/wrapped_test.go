package delegate

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// wrap puts a script in the plugin's place that does something of its own the first
// time it is started, and then is the plugin. The runner takes it for an ELF binary,
// which could do the same. It returns a function that waits until the script writes to
// $ready.
func wrap(b *bench, c *call.Call, firstTime string) (awaitReady func()) {
	b.t.Helper()
	awaitReady = b.fifo("ready")
	started := filepath.Join(b.scripts, "started")
	text := fmt.Sprintf("#!/bin/sh\nready=%s\nif [ ! -e %s ]; then\n: >%s\n%s\nfi\nexec %s\n",
		filepath.Join(b.scripts, "ready"), started, started, firstTime, c.Invocation.Binary)
	c.Invocation.Binary = filepath.Join(b.t.TempDir(), "wrapper")
	if err := os.WriteFile(c.Invocation.Binary, []byte(text), 0o700); err != nil {
		b.t.Fatal(err)
	}
	info, err := os.Stat(c.Invocation.Binary)
	if err != nil {
		b.t.Fatal(err)
	}
	b.runner.elf.put(c.Invocation.Binary, info, true)
	return awaitReady
}

// expectWrapped lets a script stand by for a DEL, and waits until it is ready.
func expectWrapped(b *bench, firstTime string) (target call.Call, pid int, forget func()) {
	b.t.Helper()
	patient(b)
	target = b.call("id")
	b.add(target)
	awaitReady := wrap(b, &target, firstTime)
	forget = b.runner.Prestart(expected(call.VerbDel, target))
	pids := b.standingBy("id")
	if len(pids) != 1 {
		b.t.Fatalf("%v stand by, want one", pids)
	}
	awaitReady()
	return target, pids[0], forget
}

func TestACallThatCannotBeToldToWhatStandsByHasAProcessOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		ended  bool
	}{
		"because it has closed its input":                      {"exec <&-\necho >$ready\nsleep 3600", false},
		"because it has died, and a child of it has its input": {"exec 5<&0\nsleep 3600 <&5 >/dev/null 2>&1 &\necho >$ready\nkill -9 $$", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			target, pid, forget := expectWrapped(b, c.script)
			if c.ended {
				var info unix.Siginfo
				if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
					t.Fatal(err)
				}
			}
			b.must(call.VerbDel, target)
			if dels := b.calls(call.VerbDel); len(dels) != 1 || dels[0].PID == pid {
				t.Errorf("the DELs were %+v, want one by another process than %d", dels, pid)
			}
			b.stores()
			forget()
			gone(t, pid)
		})
	}
}

func TestAPluginThatPrintsBeforeItIsToldHoldsNobodyUp(t *testing.T) {
	b := newBench(t)
	target, pid, forget := expectWrapped(b, `head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2; echo >$ready`)
	b.must(call.VerbDel, target)
	if dels := b.calls(call.VerbDel); len(dels) != 1 || dels[0].PID != pid {
		t.Errorf("the DELs were %+v, want one by process %d", dels, pid)
	}
	b.stores()
	forget()
}

// Such a child has the lock's file for as long as it lives.
func TestAChildOfWhatWasNotCalledForKeepsNoLock(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip(err)
	}
	b := newBench(t)
	pidFile := filepath.Join(b.scripts, "child")
	_, _, forget := expectWrapped(b, "setsid sh -c 'echo $$ >$0; echo >$1; exec sleep 3600' "+pidFile+" $ready >/dev/null 2>&1 &\nwait")
	forget()
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(string(text), &child); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(child, unix.SIGKILL); err != nil { // it was there until now
		t.Error(err)
	}
	lock, ours, err := b.runner.locks.tryTake("id")
	if err != nil || !ours {
		t.Fatalf("the lock is ours: %v, %v", ours, err)
	}
	lock.release()
}

// endWrapperThatStoodBy is for a plugin that is a script around another one.
func endWrapperThatStoodBy(t *testing.T) processGroup {
	b := newBench(t)
	_, pid, forget := expectWrapped(b, "exec 5<&0\nsh -c 'sleep 3600; :' <&5 &\necho >$ready\nwait")
	forget()
	return processGroup(pid)
}

// An installer that is at work is waited for by the call, which needs the plugin, and not
// also before the journal is written.
func TestABinaryThatIsBeingWrittenIsNotWaitedForToStandBy(t *testing.T) {
	b := newBench(t)
	patient(b)
	target := b.call("id")
	from, err := os.Open(target.Invocation.Binary)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	target.Invocation.Binary = filepath.Join(t.TempDir(), "installed")
	to, err := os.OpenFile(target.Invocation.Binary, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		forget := b.runner.Prestart(expected(call.VerbDel, target))
		forget()
		if took := time.Since(began); took > 0 {
			t.Errorf("it was waited for %s", took)
		}
	})
}

func TestTheObserverIsToldOfWhatStandsBy(t *testing.T) {
	o := &observed{}
	b := newBench(t, func(opts *Options) { opts.Observer = o })
	patient(b)
	target := b.call("id")
	forget := b.runner.Prestart(expected(call.VerbDel, target), expected(call.VerbAdd, target))
	b.must(call.VerbDel, target)
	forget()
	want := "[1 -1 1 1 -1 -1]" // VERSION; two stand by; one is called, and the other is not
	if got := fmt.Sprint(o.running); got != want {
		t.Errorf("processes came and went: %s; want %s", got, want)
	}
}

func TestEachCallOfAnExpectationInheritsItsLock(t *testing.T) {
	for name, standsBy := range map[string]bool{"one that stood by": true, "one that did not": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			patient(b)
			target := b.call("id")
			b.add(target)
			wrapped := target
			inherited := filepath.Join(b.scripts, "inherited")
			wrap(b, &wrapped, "readlink /proc/$$/fd/3 >"+inherited)
			if standsBy {
				target = wrapped
			}
			forget := b.runner.Prestart(expected(call.VerbDel, target))
			defer forget()
			b.must(call.VerbDel, wrapped)
			if got, err := os.ReadFile(inherited); err != nil || string(got) != b.opts.LockFile+"\n" {
				t.Errorf("its descriptor 3 was %q, %v; want %s", got, err, b.opts.LockFile)
			}
		})
	}
}
