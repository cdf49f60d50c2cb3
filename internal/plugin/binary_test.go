package plugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The plugin directory is renamed, which a restarted runner has as --cni-bin-dir, and later has no plugin.
func TestMovedPlugin(t *testing.T) {
	f := newFake(t)
	c := f.call("id")
	f.add(c)
	recorded := c.Invocation.Binary
	elsewhere := filepath.Join(t.TempDir(), "bin")
	check.Must(t, os.Rename(f.bin, elsewhere))
	f.bin, f.dir = elsewhere, filepath.Join(elsewhere, fakeType+".d")
	f.start(func(o *Options) { o.BinDirs, o.LockFile = []string{elsewhere}, filepath.Join(elsewhere, "calls.lock") })
	f.must(c, call.VerbCheck, call.VerbDel)
	moved := filepath.Join(f.bin, fakeType)
	if got, err := f.runner.Executable(fakeType, recorded); err != nil || got != moved {
		t.Errorf("got %s, %v; want %s", got, err, moved)
	}
	f.wantDelIn(f.bin)
	if c.Invocation.Binary != recorded {
		t.Errorf("the recorded invocation was changed to %s", c.Invocation.Binary)
	}

	check.Must(t, os.Remove(moved))
	_, err := f.runner.Executable(fakeType, recorded)
	wantText(t, err, recorded, f.bin, "--cni-bin-dir")
	wantError(t, f.run(call.VerbDel, c), call.NotStarted, "--cni-bin-dir")
}

// wantDelIn fails the test if there was not exactly one DEL, with the directory in CNI_PATH.
func (f *fixture) wantDelIn(dir string) {
	f.t.Helper()
	if calls := f.calls(call.VerbDel); len(calls) != 1 || calls[0].Env["CNI_PATH"] != dir {
		f.t.Errorf("the plugin had the calls %+v; want one, with %s in CNI_PATH", calls, dir)
	}
}

// A recorded path is used if it exists and names the plugin in a plugin directory. A directory may
// be a file now.
func TestExecutable(t *testing.T) {
	f := newFake(t)
	second, file, foreign := t.TempDir(), filepath.Join(t.TempDir(), "file"), t.TempDir()
	plugin := filepath.Join(f.bin, fakeType)
	for _, path := range []string{file, filepath.Join(second, fakeType), filepath.Join(second, "other"), filepath.Join(foreign, fakeType)} {
		check.Must(t, os.WriteFile(path, nil, 0o700))
	}
	f.start(func(o *Options) { o.BinDirs = append(o.BinDirs, second, file) })
	for path, want := range map[string]string{
		plugin:                          plugin,
		filepath.Join(second, fakeType): filepath.Join(second, fakeType),
		second + "/../" + filepath.Base(second) + "/" + fakeType: second + "/../" + filepath.Base(second) + "/" + fakeType,
		filepath.Join(file, fakeType):                            plugin,
		filepath.Join(foreign, fakeType):                         plugin,
		filepath.Join(second, "other"):                           plugin,
		second + "/sub/" + fakeType:                              plugin,
		fakeType:                                                 plugin,
	} {
		if got, err := f.runner.Executable(fakeType, path); got != want || err != nil {
			t.Errorf("%s: got %s, %v; want %s", path, got, err, want)
		}
	}
	_, err := f.runner.Executable("unknown", filepath.Join(foreign, "unknown"))
	wantText(t, err, foreign, "is not executed, because it is not this plugin in a directory of --cni-bin-dir", `"unknown"`)
}

// A record cannot name a program to be executed.
func TestForeignExecutable(t *testing.T) {
	f := newFake(t)
	c := f.call("id")
	f.add(c)
	foreign := t.TempDir()
	ran := filepath.Join(foreign, "ran")
	harness.WriteProgram(t, filepath.Join(foreign, fakeType), []byte("#!/bin/sh\ntouch "+ran+"\n"))
	c.Invocation.Binary, c.Invocation.Path = filepath.Join(foreign, fakeType), foreign
	f.must(c, call.VerbDel)
	if _, err := os.Stat(ran); err == nil {
		t.Error("the recorded program was executed")
	}
	f.wantDelIn(f.bin)
	f.wantHeld()
}
