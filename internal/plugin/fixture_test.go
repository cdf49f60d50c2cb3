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
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// fixture is a runner with one plugin: a fake, which is the scripted plugin (test/scripted), or a
// real one.
type fixture struct {
	t      *testing.T
	runner *Runner
	// bin is the plugin directory. dir has the scripts, log and store of a fake, or the state of a real
	// plugin.
	bin, dir string
	network  call.Network
	opts     Options
	// profiles are what the runner gets for each new invocation.
	profiles profile.Set
}

// fakeType is the type of a fake that imitates no other plugin.
const fakeType = "scripted"

const (
	goodResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.9/24","gateway":"10.1.0.1"}]}`
	goodError  = `{"cniVersion":"1.1.0","code":999,"msg":"no","details":"none left"}`
	// firstIPs are the addresses that a new store allocates.
	firstIPs = "10.1.0.2/24 via 10.1.0.1, fd00::2/120 via fd00::1"
	// twoRanges are ranges of which the fake and host-local allocate an address each.
	twoRanges = `"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]`
)

// newFake returns a fixture of a fake that works correctly until a script says otherwise.
func newFake(t *testing.T, change ...func(*Options)) *fixture {
	t.Helper()
	return imitate(t, fakeType, change...)
}

// imitate returns a fixture of a fake that is called by the type of another plugin, and behaves like
// that.
func imitate(t *testing.T, pluginType string, change ...func(*Options)) *fixture {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	f := &fixture{t: t, bin: bin, dir: filepath.Join(bin, pluginType+".d"), profiles: embeddedProfiles(t)}
	f.configure(`{"type":"`+pluginType+`",`+twoRanges+`}`, `{}`)
	check.Must(t, os.MkdirAll(f.dir, 0o755))
	check.Must(t, os.Symlink(os.Getenv(harness.EnvScripted), filepath.Join(bin, pluginType)))
	var err error
	f.profiles["scripted"], err = profile.Parse([]byte(`{"type":"scripted","repeatedAdd":"refused","verifyBy":"check","checkProves":"presence",
		"lost":{"codes":[999],"message":"Failed to find address"},"addOutlivesSeconds":0,"del":"released","store":"node","lookup":"none",
		"requests":["args.cni.ips"],"requestForm":"address","podIdentity":"none","namespace":"any","unique":true}`))
	check.Must(t, err)
	f.opts = Options{BinDirs: []string{bin}, LockFile: filepath.Join(bin, "calls.lock"), IfName: "eth0", HostLocal: HostLocalProgram, Timeout: 50 * time.Second, Grace: time.Minute}
	f.start(change...)
	return f
}

func embeddedProfiles(t testing.TB) profile.Set {
	t.Helper()
	set, err := profile.Load()
	check.Must(t, err)
	return set
}

// start makes the runner, anew after a restart.
func (f *fixture) start(change ...func(*Options)) {
	f.t.Helper()
	f.opts.Profiles = func() (profile.Set, error) { return f.profiles, nil }
	for _, c := range change {
		c(&f.opts)
	}
	var err error
	f.runner, err = New(f.opts)
	check.Must(f.t, err)
}

// setProfile changes the profile of the fake.
func (f *fixture) setProfile(change func(*profile.Profile)) {
	p := f.profiles[fakeType]
	change(&p)
	f.profiles[fakeType] = p
}

// networkOf returns a network with a plugin object, as package cniconf does.
func networkOf(name, config string) call.Network {
	var object struct{ IPAM struct{ Type string } }
	_ = json.Unmarshal([]byte(config), &object) // some tests have a broken one
	return call.Network{Name: name, CNIVersion: "0.3.1", PluginConfig: json.RawMessage(config), IPAMType: object.IPAM.Type}
}

// configure sets the ipam section, in which DIR is the fixture's directory, and the capabilities of the
// network.
func (f *fixture) configure(ipam, capabilities string) {
	f.network = networkOf("net", `{"type":"cilium-cni","capabilities":`+capabilities+`,"ipam":`+strings.ReplaceAll(ipam, "DIR", f.dir)+`}`)
}

// script writes the script of a verb.
func (f *fixture) script(verb, text string) {
	f.t.Helper()
	f.write(strings.ToLower(verb)+".json", text)
}

func (f *fixture) write(name, text string) {
	f.t.Helper()
	check.Must(f.t, os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600))
}

// fifo makes a FIFO for the announce of a script, and returns a function that waits for it.
func (f *fixture) fifo(name string) func() {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	check.Must(f.t, unix.Mkfifo(path, 0o600))
	return func() {
		if _, err := os.ReadFile(path); err != nil {
			f.t.Error(err)
		}
	}
}

// newInvocation returns an invocation for the owner "owner", or why there is none.
func (f *fixture) newInvocation(id string) (call.Invocation, error) {
	return f.runner.NewInvocation(f.t.Context(), f.network, id, "owner")
}

func (f *fixture) invocation(id string) call.Invocation {
	f.t.Helper()
	inv, err := f.newInvocation(id)
	check.Must(f.t, err)
	return inv
}

func (f *fixture) call(id string) call.Call {
	f.t.Helper()
	return call.Call{Invocation: f.invocation(id)}
}

// run runs a verb and returns its error.
func (f *fixture) run(verb string, c call.Call) error {
	switch verb {
	case call.VerbAdd:
		_, err := f.runner.Add(f.t.Context(), c)
		return err
	case call.VerbDel:
		return f.runner.Del(f.t.Context(), c)
	case call.VerbCheck:
		return f.runner.Check(f.t.Context(), c)
	default:
		return f.runner.Status(f.t.Context(), c.Invocation)
	}
}

// must runs verbs that must succeed.
func (f *fixture) must(c call.Call, verbs ...string) {
	f.t.Helper()
	for _, verb := range verbs {
		if err := f.run(verb, c); err != nil {
			f.t.Fatalf("%s: %v", verb, err)
		}
	}
}

// add runs an ADD that must succeed, and returns its result.
func (f *fixture) add(c call.Call) call.Result {
	f.t.Helper()
	got, err := f.runner.Add(f.t.Context(), c)
	check.Must(f.t, err)
	return got
}

// wantAdd runs an ADD that must succeed and return the addresses.
func (f *fixture) wantAdd(c call.Call, want string) call.Result {
	f.t.Helper()
	got := f.add(c)
	if text := ipsOf(got); text != want {
		f.t.Errorf("ADD of %s returned %s, want %s", c.ContainerID, text, want)
	}
	return got
}

// gc runs a GC with the given attachments, which must succeed.
func (f *fixture) gc(c call.Call, valid ...call.Attachment) {
	f.t.Helper()
	check.Must(f.t, f.runner.GC(f.t.Context(), c.Invocation, append([]call.Attachment{}, valid...)))
}
