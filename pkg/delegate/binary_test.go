package delegate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// move renames the folder of the plugin's executable, which a restarted runner has as
// --cni-bin-dir.
func (b *bench) move() {
	b.t.Helper()
	elsewhere := filepath.Join(b.t.TempDir(), "bin")
	err := os.Rename(b.bin, elsewhere)
	if err != nil {
		b.t.Fatal(err)
	}
	b.bin, b.opts.BinDirs, b.opts.LockFile = elsewhere, []string{elsewhere}, filepath.Join(elsewhere, "calls.lock")
	b.scripts = filepath.Join(elsewhere, pluginType+".d")
	if b.runner, err = New(b.opts); err != nil {
		b.t.Fatal(err)
	}
}

func TestARecordedPluginThatHasMovedIsFoundByItsType(t *testing.T) {
	b := newBench(t)
	patient(b)
	c := b.call("id")
	b.add(c)
	recorded := c.Invocation.Binary
	b.move()
	for _, verb := range []string{call.VerbCheck, call.VerbDel} {
		forget := b.runner.Prestart(expected(verb, c))
		if got := b.standingBy("id"); len(got) != 1 {
			t.Errorf("%s: %v stand by, want one", verb, got)
		}
		b.must(verb, c)
		forget()
	}
	if got, err := b.runner.Executable(pluginType, recorded); err != nil || got != filepath.Join(b.bin, pluginType) {
		t.Errorf("got %s, %v", got, err)
	}
	if seen := b.calls(call.VerbDel); len(seen) != 1 || seen[0].Env["CNI_PATH"] != b.bin {
		t.Errorf("the plugin saw %+v; want today's folder in CNI_PATH", seen)
	}
	if c.Invocation.Binary != recorded {
		t.Errorf("the recorded context was changed to %s", c.Invocation.Binary)
	}
}

func TestAPluginThatIsNowhereIsNamedWithARemedy(t *testing.T) {
	b := newBench(t)
	c := b.call("id")
	b.add(c)
	recorded := c.Invocation.Binary
	b.move()
	if err := os.Remove(filepath.Join(b.bin, pluginType)); err != nil {
		t.Fatal(err)
	}
	_, err := b.runner.Executable(pluginType, recorded)
	for _, want := range []string{recorded, b.bin, "--cni-bin-dir"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	wantError(t, b.run(call.VerbDel, c), call.NotStarted, "--cni-bin-dir")
}

// The folder itself may be a file now, or the recorded path be there: then it is used.
func TestARecordedPluginThatIsThereIsUsed(t *testing.T) {
	b := newBench(t)
	recorded := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(recorded, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := b.runner.Executable(pluginType, recorded); got != recorded || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := b.runner.Executable(pluginType, filepath.Join(recorded, "scripted")); got != filepath.Join(b.bin, pluginType) || err != nil {
		t.Errorf("below a file: got %s, %v", got, err)
	}
}

// A wrapper that takes a lock before it reads its configuration would wait for its own
// other process: the DEL for the ADD that stands by with the lock.
func TestAScriptDoesNotStandBy(t *testing.T) {
	b := wrappedHostLocal(t, "exec 9>$HERE/wrapper.lock\nflock 9\n$HOST_LOCAL", func(o *Options) { o.Timeout = 10 * time.Second })
	c := b.call("id")
	forget := b.runner.Prestart(expected(call.VerbDel, c), expected(call.VerbAdd, c))
	defer forget()
	if got := b.standingBy("id"); len(got) != 0 {
		t.Errorf("%v stand by, want none", got)
	}
	b.must(call.VerbDel, c)
	b.proven(c)
}

func TestWhetherABinaryIsELFIsFoundOutAnewWhenItChanges(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(t.TempDir(), "plugin")
	for _, c := range []struct {
		text string
		is   bool
	}{{"\x7fELF and so on", true}, {"#!/bin/sh\n", false}, {"\x7fEL", false}, {"\x7fELF", true}} {
		if err := errors.Join(os.WriteFile(path+".new", []byte(c.text), 0o700), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := b.runner.isELF(path); got != c.is {
				t.Errorf("%q: got %v, want %v", c.text, got, c.is)
			}
		}
	}
	if b.runner.isELF(path + "-gone") {
		t.Error("a file that is not there is taken for an ELF binary")
	}
}
