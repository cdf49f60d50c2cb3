package plugin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// wrap replaces the plugin of a call by a script that runs other commands at its first start, and
// then the plugin. The runner takes it for an ELF binary, which could do the same. The returned
// function waits until the script writes to $ready.
func (f *fixture) wrap(c *call.Call, atFirst string) (awaitReady func()) {
	f.t.Helper()
	awaitReady = f.fifo("ready")
	started := filepath.Join(f.dir, "started")
	text := fmt.Sprintf("#!/bin/sh\nready=%s\nif [ ! -e %s ]; then\n: >%s\n%s\nfi\nexec %s\n",
		filepath.Join(f.dir, "ready"), started, started, atFirst, c.Invocation.Binary)
	dir := f.t.TempDir()
	f.runner.opts.BinDirs = append(f.runner.opts.BinDirs, dir)
	c.Invocation.Binary = filepath.Join(dir, c.Invocation.Plugin)
	harness.WriteProgram(f.t, c.Invocation.Binary, []byte(text))
	f.runner.isELF = func(string) bool { return true }
	return awaitReady
}

// prestartWrapped prestarts the DEL of a held attachment by a script, and waits until that is ready.
func (f *fixture) prestartWrapped(atFirst string) (target call.Call, pid int, discard func()) {
	f.t.Helper()
	target = f.call("id")
	f.add(target)
	awaitReady := f.wrap(&target, atFirst)
	pids, discard := f.prestart(target, call.VerbDel)
	awaitReady()
	return target, pids[0], discard
}

func TestPrestartedNotReading(t *testing.T) {
	f := newPrestartable(t)
	target, pid, discard := f.prestartWrapped("exec <&-\necho >$ready\nsleep 3600")
	f.must(target, call.VerbDel)
	f.wantOnlyDel(pid, false)
	discard()
	wantReaped(t, pid)
}

func TestPrestartedPrintsEarly(t *testing.T) {
	f := newPrestartable(t)
	target, pid, discard := f.prestartWrapped(`head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2; echo >$ready`)
	f.must(target, call.VerbDel)
	f.wantOnlyDel(pid, true)
	discard()
}

// A child of a discarded process has the lock's file for as long as it lives.
func TestPrestartedChildKeepsNoLock(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip(err)
	}
	f := newPrestartable(t)
	pidFile := filepath.Join(f.dir, "child")
	_, _, discard := f.prestartWrapped("setsid sh -c 'echo $$ >$0; echo >$1; exec sleep 3600' " + pidFile + " $ready >/dev/null 2>&1 &\nwait")
	discard()
	text, err := os.ReadFile(pidFile)
	check.Must(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	check.Must(t, err)
	if err := unix.Kill(child, unix.SIGKILL); err != nil { // it was alive until now
		t.Error(err)
	}
	f.wantUnlocked("id")
}

// A wrapper that takes a lock before it reads its configuration would wait for its own other
// process: the DEL for the prestarted ADD with the lock.
func TestScriptIsNotPrestarted(t *testing.T) {
	f := wrapHostLocal(t, "exec 9>$HERE/wrapper.lock\nflock 9\n$HOST_LOCAL", func(o *Options) { o.Timeout = 10 * time.Second })
	c := f.call("id")
	defer f.runner.Prestart(call.Upcoming{Verb: call.VerbDel, Call: c}, call.Upcoming{Verb: call.VerbAdd, Call: c})()
	if got := f.waiting("id"); len(got) != 0 {
		t.Errorf("%v were prestarted, want none", got)
	}
	f.must(c, call.VerbDel)
	f.addInStore(c)
}
