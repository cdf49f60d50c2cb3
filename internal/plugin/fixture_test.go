package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
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
	// firstIPs and secondIPs are the addresses that a new store allocates.
	firstIPs  = "10.1.0.2/24 via 10.1.0.1, fd00::2/120 via fd00::1"
	secondIPs = "10.1.0.3/24 via 10.1.0.1, fd00::3/120 via fd00::1"
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
	f.network = networkOf("net", `{"type":"cilium-cni","ipam":{"type":"`+pluginType+`","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]}}`)
	err := errors.Join(os.MkdirAll(filepath.Join(f.dir, "queue"), 0o755), os.Symlink(os.Getenv(fakeBinary), filepath.Join(bin, pluginType)))
	if err != nil {
		t.Fatal(err)
	}
	f.profiles["scripted"], err = profile.Parse([]byte(`{"type":"scripted","repeatedAdd":"refused","verifyBy":"check","checkProves":"presence",
		"lost":{"codes":[999],"message":"Failed to find address"},"addOutlivesSeconds":0,"del":"released","store":"node","lookup":"none",
		"requests":["args.cni.ips"],"requestForm":"address","podIdentity":"none","namespace":"any","unique":true}`))
	if err != nil {
		t.Fatal(err)
	}
	f.opts = Options{BinDirs: []string{bin}, LockFile: filepath.Join(bin, "calls.lock"), IfName: "eth0", Timeout: 50 * time.Second, Grace: time.Minute}
	f.start(change...)
	return f
}

func embeddedProfiles(t testing.TB) profile.Set {
	t.Helper()
	set, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
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
	if f.runner, err = New(f.opts); err != nil {
		f.t.Fatal(err)
	}
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

// script writes the script of a verb.
func (f *fixture) script(verb, text string) {
	f.t.Helper()
	f.write(strings.ToLower(verb)+".json", text)
}

func (f *fixture) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// shellPlugin writes a shell script as another plugin, and returns its path.
func (f *fixture) shellPlugin(text string) string {
	f.t.Helper()
	path := filepath.Join(f.bin, "shell")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// fifo makes a FIFO for the announce of a script, and returns a function that waits for it.
func (f *fixture) fifo(name string) func() {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		f.t.Fatal(err)
	}
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
	if err != nil {
		f.t.Fatal(err)
	}
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
	if err != nil {
		f.t.Fatal(err)
	}
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

// byHand runs a plugin as a careless runtime would: by plain exec, without limits and checks.
func (f *fixture) byHand(verb string, c call.Call, config []byte) (stdout []byte, exit int) {
	f.t.Helper()
	cmd := exec.Command(c.Invocation.Binary)
	cmd.Env = cniEnv(verb, c.Invocation, c.Args)
	cmd.Stdin = bytes.NewReader(config)
	stdout, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		f.t.Fatal(err)
	}
	return stdout, cmd.ProcessState.ExitCode()
}

// gcConfig returns the configuration of a GC by a runtime with the given attachments.
func (f *fixture) gcConfig(c call.Call, attachments string) []byte {
	f.t.Helper()
	config, err := withKeys(c.Invocation.Config, map[string]json.RawMessage{"cni.dev/valid-attachments": json.RawMessage(attachments)})
	if err != nil {
		f.t.Fatal(err)
	}
	return config
}

// gc runs a GC by a runtime with the given attachments, which must succeed, and returns stdout.
func (f *fixture) gc(c call.Call, attachments string) string {
	f.t.Helper()
	stdout, exit := f.byHand("GC", c, f.gcConfig(c, attachments))
	if exit != 0 {
		f.t.Errorf("GC: exit status %d: %s", exit, stdout)
	}
	return string(stdout)
}
