package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// move renames the plugin directory, which a restarted runner has as --cni-bin-dir.
func (f *fixture) move() {
	f.t.Helper()
	elsewhere := filepath.Join(f.t.TempDir(), "bin")
	if err := os.Rename(f.bin, elsewhere); err != nil {
		f.t.Fatal(err)
	}
	f.bin, f.dir = elsewhere, filepath.Join(elsewhere, fakeType+".d")
	f.start(func(o *Options) { o.BinDirs, o.LockFile = []string{elsewhere}, filepath.Join(elsewhere, "calls.lock") })
}

func TestMovedPlugin(t *testing.T) {
	f := newPrestartable(t)
	c := f.call("id")
	f.add(c)
	recorded := c.Invocation.Binary
	f.move()
	for _, verb := range []string{call.VerbCheck, call.VerbDel} {
		_, discard := f.prestart(c, verb)
		f.must(c, verb)
		discard()
	}
	if got, err := f.runner.Executable(fakeType, recorded); err != nil || got != filepath.Join(f.bin, fakeType) {
		t.Errorf("got %s, %v", got, err)
	}
	if calls := f.calls(call.VerbDel); len(calls) != 1 || calls[0].Env["CNI_PATH"] != f.bin {
		t.Errorf("the plugin had the calls %+v; want the directory of now in CNI_PATH", calls)
	}
	if c.Invocation.Binary != recorded {
		t.Errorf("the recorded invocation was changed to %s", c.Invocation.Binary)
	}
}

func TestMissingPlugin(t *testing.T) {
	f := newFake(t)
	c := f.call("id")
	f.add(c)
	recorded := c.Invocation.Binary
	f.move()
	if err := os.Remove(filepath.Join(f.bin, fakeType)); err != nil {
		t.Fatal(err)
	}
	_, err := f.runner.Executable(fakeType, recorded)
	wantText(t, err, recorded, f.bin, "--cni-bin-dir")
	wantError(t, f.run(call.VerbDel, c), call.NotStarted, "--cni-bin-dir")
}

// A recorded path is used if it exists and names the plugin in a plugin directory. A directory may
// be a file now.
func TestExecutable(t *testing.T) {
	f := newFake(t)
	second, file, foreign := filepath.Join(t.TempDir(), "second"), filepath.Join(t.TempDir(), "file"), t.TempDir()
	plugin := filepath.Join(f.bin, fakeType)
	err := errors.Join(os.Mkdir(second, 0o700), os.WriteFile(filepath.Join(second, fakeType), nil, 0o700), os.WriteFile(file, nil, 0o600),
		os.WriteFile(filepath.Join(foreign, fakeType), nil, 0o700), os.WriteFile(filepath.Join(second, "other"), nil, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	f.start(func(o *Options) { o.BinDirs = append(o.BinDirs, second, file) })
	for path, want := range map[string]string{
		plugin:                            plugin,
		filepath.Join(second, fakeType):   filepath.Join(second, fakeType),
		second + "/../second/" + fakeType: second + "/../second/" + fakeType,
		filepath.Join(file, fakeType):     plugin,
		filepath.Join(foreign, fakeType):  plugin,
		filepath.Join(second, "other"):    plugin,
		second + "/sub/" + fakeType:       plugin,
		fakeType:                          plugin,
	} {
		if got, err := f.runner.Executable(fakeType, path); got != want || err != nil {
			t.Errorf("%s: got %s, %v; want %s", path, got, err, want)
		}
	}
	_, err = f.runner.Executable("unknown", filepath.Join(foreign, "unknown"))
	wantText(t, err, foreign, "is not executed, because it is not this plugin in a directory of --cni-bin-dir", `"unknown"`)
}

// A record cannot name a program to be executed.
func TestForeignExecutable(t *testing.T) {
	f := newFake(t)
	c := f.call("id")
	f.add(c)
	foreign := t.TempDir()
	ran := filepath.Join(foreign, "ran")
	if err := os.WriteFile(filepath.Join(foreign, fakeType), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.Invocation.Binary, c.Invocation.Path = filepath.Join(foreign, fakeType), foreign
	f.must(c, call.VerbDel)
	if _, err := os.Stat(ran); err == nil {
		t.Error("the recorded program was executed")
	}
	if calls := f.calls(call.VerbDel); len(calls) != 1 || calls[0].Env["CNI_PATH"] != f.bin {
		t.Errorf("the plugin had the calls %+v; want one, with its directory in CNI_PATH", calls)
	}
	f.wantHeld()
}

func TestIsELF(t *testing.T) {
	f := newFake(t)
	path := filepath.Join(t.TempDir(), "plugin")
	for _, c := range []struct {
		text string
		want bool
	}{{"\x7fELF and so on", true}, {"#!/bin/sh\n", false}, {"\x7fEL", false}, {"\x7fELF", true}} {
		if err := errors.Join(os.WriteFile(path+".new", []byte(c.text), 0o700), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := f.runner.isELF(path); got != c.want {
				t.Errorf("%q: got %v, want %v", c.text, got, c.want)
			}
		}
	}
	if f.runner.isELF(path + "-gone") {
		t.Error("a missing file is an ELF binary")
	}
}
