package plugin

import (
	"errors"
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

func hostLocalIs(value string) func(*Options) { return func(o *Options) { o.HostLocal = value } }

// newEmbedded returns a fixture of host-local in this process, with the program of a version installed.
func newEmbedded(t *testing.T, version string) *fixture {
	return newRealOf(t, version, dualStack, hostLocalIs(HostLocalAuto))
}

func TestEmbedded(t *testing.T) {
	real := newReal(t, dualStack)
	other := filepath.Join(t.TempDir(), "host-local")
	self, err := os.Executable()
	check.Must(t, err)
	check.Must(t, os.Link(self, other))
	for name, tt := range map[string]struct {
		option, bin, pluginType string
		want                    string
	}{
		"program":                   {HostLocalAuto, real.bin, "host-local", "/host-local is host-local v1.10.0 of containernetworking/plugins"},
		"older program":             {"", filepath.Join(os.Getenv(harness.EnvOldPlugins), harness.PluginsV14), "host-local", "host-local v1.4.0"},
		"no program":                {HostLocalAuto, "/nowhere", "host-local", "no program host-local in /nowhere"},
		"script":                    {HostLocalAuto, wrapHostLocal(t, "").opts.BinDirs[0], "host-local", ""},
		"other Go program":          {HostLocalAuto, filepath.Dir(other), "host-local", ""},
		"other plugin":              {HostLocalEmbedded, real.bin, "static", ""},
		"program by option":         {HostLocalProgram, real.bin, "host-local", ""},
		"embedded by option":        {HostLocalEmbedded, filepath.Dir(other), "host-local", "--host-local"},
		"program of a wrong script": {HostLocalProgram, "/nowhere", "host-local", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newReal(t, dualStack, hostLocalIs(tt.option), func(o *Options) { o.BinDirs = []string{tt.bin} })
			got := f.runner.Embedded(tt.pluginType)
			check.True(t, strings.Contains(got, tt.want) && (got == "") == (tt.want == ""), "got %q; want %q", got, tt.want)
		})
	}
}

// A call without a program returns and leaves what the program would, and a program goes on with it.
func TestEmbeddedVerbs(t *testing.T) {
	for name, version := range map[string]string{"newest": "", "v1.9": harness.PluginsV19, "v1.4": harness.PluginsV14, "v1.0": harness.PluginsV10} {
		t.Run(name, func(t *testing.T) { embeddedVerbs(t, newEmbedded(t, version)) })
	}
}

func embeddedVerbs(t *testing.T, f *fixture) {
	target := f.call("id")
	check.Equal(t, "binary", target.Binary, "")
	check.Must(t, os.Mkdir(f.leaseDir(), 0o755))
	if held, err := f.runner.Lookup(t.Context(), target.Invocation); len(held.Addresses) > 0 || err != nil {
		t.Errorf("lookup before the first ADD: got %v, %v; want nothing, and that for certain", held, err)
	}
	got := f.wantAdd(target, firstIPs)
	check.True(t, got.InStore, "the result is not known to be in the store")
	f.must(target, call.VerbCheck)
	f.wantLeases("10.1.0.2", "fd00::2")
	wantError(t, f.run(call.VerbAdd, target), call.Refused, "duplicate allocation")

	f.start(hostLocalIs(HostLocalProgram))
	f.must(target, call.VerbCheck, call.VerbDel)
	f.wantAdd(f.call("program"), "10.1.0.3/24 via 10.1.0.1, fd00::3/120 via fd00::1")
	byProgram := f.call("program")

	f.start(hostLocalIs(HostLocalAuto))
	f.must(byProgram, call.VerbCheck)
	lost := f.run(call.VerbCheck, target)
	check.True(t, call.IsLost(target.Invocation, lost), "CHECK of a released ID: got %v; want that it is lost", lost)
	f.gc(target)
	f.wantLeases()
	f.must(target, call.VerbDel)
}

// Another program with another store was host-local, and is missing now: its addresses are not lost for that, and no other
// store is used.
func TestForeignHostLocalMissing(t *testing.T) {
	f := wrapHostLocal(t, `sed "s#$HERE#$HERE/elsewhere#" | exec $HOST_LOCAL`, hostLocalIs(HostLocalAuto))
	target := f.call("id")
	f.must(target, call.VerbAdd)
	check.Must(t, os.Remove(target.Binary))
	for range 2 {
		for _, verb := range []string{call.VerbCheck, call.VerbDel} {
			wantError(t, f.run(verb, target), call.NotStarted, "no longer exists")
		}
		if _, err := f.newInvocation("other"); err == nil && f.runner.foreign.Load() {
			t.Error("another ADD would use the store of host-local")
		}
		f.start() // a new process
	}
}

// host-local finds the key in any case of its letters: nothing is looked up, or created, elsewhere.
func TestDirectoryInAnotherCase(t *testing.T) {
	f := newRealOf(t, "", strings.Replace(dualStack, "dataDir", "datadir", 1))
	p := f.profiles["host-local"]
	p.DefaultStateDir = t.TempDir()
	f.profiles["host-local"] = p
	check.Must(t, os.Mkdir(filepath.Join(p.DefaultStateDir, "net"), 0o755))
	check.Must(t, f.runner.CheckConfig(t.Context(), f.network, f.invocation("id")))
	check.Absent(t, f.leaseDir())

	f.start(hostLocalIs(HostLocalAuto))
	target := f.call("id")
	got := f.wantAdd(target, firstIPs)
	held, err := f.runner.Holds(target.Invocation, call.Addrs(got.Addresses))
	check.True(t, held && err == nil, "the addresses are lost: got %v, %v", held, err)
}

// Another program holds the lock: nothing is started, and nothing acts later.
func TestEmbeddedLock(t *testing.T) {
	f := newEmbedded(t, "")
	target := f.call("id")
	f.writeLease("lock", "")
	lock, err := os.Open(filepath.Join(f.leaseDir(), "lock"))
	check.Must(t, err)
	defer lock.Close()
	check.Must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	f.runner.opts.Timeout = 50 * time.Millisecond
	for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbDel} {
		wantError(t, f.run(verb, target), call.NotStarted, "lslocks")
	}
	check.Must(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	f.runner.opts.Timeout = time.Minute
	f.wantLeases()
	f.must(target, call.VerbAdd)
}

func TestProgramDiffers(t *testing.T) {
	const outside = `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/24","gateway":"10.1.1.1"}]]}`
	for name, tt := range map[string]struct {
		version, ipam string
		// own reports that host-local in this process refuses the configuration.
		own  bool
		want string
	}{
		"same":              {"", dualStack, false, ""},
		"both refuse":       {"", outside, true, ""},
		"older one accepts": {harness.PluginsV19, outside, true, "accepts what the daemon refuses"},
		"older one, too":    {harness.PluginsV14, dualStack, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRealOf(t, tt.version, tt.ipam, hostLocalIs(HostLocalAuto))
			inv := f.invocation("id")
			own := f.runner.CheckConfig(t.Context(), f.network, inv)
			check.True(t, (own != nil) == tt.own, "CheckConfig returned %v", own)
			got := f.runner.ProgramDiffers(t.Context(), f.network, inv)
			check.True(t, (got == nil) == (tt.want == "") && (got == nil || strings.Contains(got.Error(), tt.want)), "got %v; want %q", got, tt.want)
		})
	}
}

func TestReleaseEnded(t *testing.T) {
	f := newEmbedded(t, "")
	f.must(f.call("kept"), call.VerbAdd)
	f.must(f.call("new"), call.VerbAdd)
	f.must(f.call("ended"), call.VerbAdd)
	began := time.Now().Add(-time.Hour)
	for _, name := range []string{"10.1.0.2", "10.1.0.4", "fd00::2", "fd00::4"} { // of kept and ended
		check.Must(t, os.Chtimes(filepath.Join(f.leaseDir(), name), time.Time{}, began.Add(-time.Hour)))
	}
	released, err := f.runner.ReleaseEnded(t.Context(), f.invocation("any"), func(id string, written time.Time) bool {
		return id != "kept" && written.Before(began)
	})
	check.Must(t, err)
	check.Equal(t, "released", released, []call.Attachment{{ContainerID: "ended", IfName: "eth0"}, {ContainerID: "ended", IfName: "eth0"}})
	f.wantLeases("10.1.0.2", "10.1.0.3", "fd00::2", "fd00::3")
	check.Must(t, errors.Join(os.Rename(f.leaseDir(), f.leaseDir()+".away")))
	if held, err := f.runner.Lookup(t.Context(), f.invocation("kept")); err == nil {
		t.Errorf("lookup without the directory: got %v; want an error", held)
	}
}
