package delegate

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// byHand runs a plugin as a runtime without any care would: by plain exec, with
// nothing between the plugin and what it does.
func (b *bench) byHand(verb string, c call.Call, config []byte) (stdout []byte, exit int) {
	b.t.Helper()
	cmd := exec.Command(c.Invocation.Binary)
	cmd.Env = environment{
		verb: verb, id: c.ContainerID, netns: c.Invocation.NetNS, ifName: c.Invocation.IfName,
		args: c.Invocation.Args, path: c.Invocation.Path,
	}.list()
	cmd.Stdin = bytes.NewReader(config)
	stdout, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		b.t.Fatal(err)
	}
	return stdout, cmd.ProcessState.ExitCode()
}

// documents returns how many JSON documents there are.
func documents(t *testing.T, stdout []byte) int {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(stdout))
	for n := 0; ; n++ {
		var document json.RawMessage
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// ourNamespace are the names of our own network namespace. Each returns a path;
// an empty one if the subtest was run elsewhere, where it is one of its names.
func ourNamespace() map[string]func(t *testing.T) string {
	return map[string]func(t *testing.T) string{
		"by the process itself":             func(*testing.T) string { return "/proc/self/ns/net" },
		"by the process's ID":               func(*testing.T) string { return byPID() },
		"by a symbolic link":                func(t *testing.T) string { return linkTo(t, byPID()) },
		"by process 1":                      sharedWithProcessOne,
		"by a symbolic link to process 1's": linkToProcessOne,
		"by a bind mount":                   mountOfOurs,
	}
}

func linkTo(t *testing.T, path string) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	return link
}

// sharedWithProcessOne is the namespace of process 1, if that is ours. Else the
// subtest is run as process 1, and the path is empty.
func sharedWithProcessOne(t *testing.T) string {
	t.Helper()
	ours, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if one, err := os.Stat(processOne); err == nil && os.SameFile(one, ours) {
		return processOne
	}
	runAsProcessOne(t)
	return ""
}

func linkToProcessOne(t *testing.T) string {
	t.Helper()
	if sharedWithProcessOne(t) == "" {
		return ""
	}
	return linkTo(t, processOne)
}

func mountOfOurs(t *testing.T) string {
	t.Helper()
	mounted := filepath.Join(t.TempDir(), "mounted")
	if err := os.WriteFile(mounted, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc/self/ns/net", mounted, "", unix.MS_BIND, ""); err != nil {
		lackRight(t, "a bind mount needs CAP_SYS_ADMIN", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mounted, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return mounted
}

// Trap "Own namespace": the CNI skeleton compares after the plugin has worked.
func TestOwnNamespaceLeaksAnAddressOfTheRealHostLocalUnlessItIsRefused(t *testing.T) {
	for name, pathOf := range ourNamespace() {
		t.Run(name, func(t *testing.T) {
			b := realBench(t, dualStack, `{}`)
			path := pathOf(t)
			if path == "" {
				return
			}
			target := b.call("id")
			target.Invocation.NetNS = path

			// With the refusal: the plugin is not started, and nothing is left.
			wantError(t, b.run(call.VerbAdd, target), call.NotStarted, "is our own")
			if _, err := os.Stat(filepath.Join(b.scripts, "net")); err == nil {
				t.Error("host-local has made its folder, want it not started")
			}
			o := b.opts
			o.NetNS = path
			if _, err := New(o); err == nil {
				t.Error("a runner with that --cni-netns was made, want it refused at start")
			}

			// Without: both addresses are taken and the answer says that nothing was.
			stdout, exit := b.byHand(call.VerbAdd, target, target.Invocation.Config)
			if n := documents(t, stdout); exit != 1 || n != 2 {
				t.Errorf("got exit status %d and %d JSON documents by hand, want 1 and 2: %s", exit, n, stdout)
			}
			b.holdsFiles("10.1.0.2", "fd00::2")

			// Were it to happen all the same, it is not taken for a plain no.
			b.runner.netns = nil
			target.ContainerID = "another"
			wantError(t, b.run(call.VerbAdd, target), call.Unknown, "exit status 1, and what it printed is no CNI error")
		})
	}
}

// Trap "Own namespace", its last sentence.
func TestAPathThatDoesNotExistPassesAndAnEmptyNamespaceIsRefusedForAddAndCheck(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	if _, err := os.Stat(target.Invocation.NetNS); err == nil {
		t.Fatalf("%s exists, want a path that does not", target.Invocation.NetNS)
	}
	if err := b.run(call.VerbAdd, target); err != nil {
		t.Fatal(err)
	}
	target.Invocation.NetNS = ""
	wantError(t, b.run(call.VerbAdd, target), call.Refused, "CNI_NETNS")
	wantError(t, b.run(call.VerbCheck, target), call.Refused, "CNI_NETNS")
	if err := b.run(call.VerbDel, target); err != nil {
		t.Errorf("DEL: %v", err)
	}
	b.holdsFiles()
}

// Trap: host-local, killed between creating an address file and writing it.
func TestAnEmptyAddressFileOfTheRealHostLocalIsFreedByNoVerb(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	if err := os.MkdirAll(filepath.Join(b.scripts, "net"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.scripts, "net", "10.1.0.2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if holds(got, addrs("10.1.0.2")[0]) {
		t.Errorf("got %s, want another address than the one of the empty file", describe(got))
	}
	for _, verb := range []string{call.VerbCheck, call.VerbDel, "GC"} {
		if verb == "GC" {
			if _, exit := b.byHand(verb, target, target.Invocation.Config); exit != 0 {
				t.Errorf("GC: exit status %d", exit)
			}
		} else if err := b.run(verb, target); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	b.holdsFiles("10.1.0.2")
}

// Trap: host-local's roll-back is destructive.
func TestTheRollBackOfTheRealHostLocalFreesWhatTheIDAlreadyHeld(t *testing.T) {
	b := realBench(t, `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120","rangeStart":"fd00::7","rangeEnd":"fd00::7"}]]}`, `{}`)
	target := b.call("id")
	if err := b.run(call.VerbAdd, target); err != nil {
		t.Fatal(err)
	}
	b.holdsFiles("10.1.0.2", "fd00::7")
	target.Requested = asked(addrs("10.1.0.77")...)
	wantError(t, b.run(call.VerbAdd, target), call.Refused, "failed to allocate for range 1")
	b.holdsFiles()
}

// Trap in the table: a request skips host-local's duplicate guard.
func TestARequestToTheRealHostLocalMakesOneIDHoldTwoUntilOneDelFreesThem(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	if err := b.run(call.VerbAdd, target); err != nil {
		t.Fatal(err)
	}
	target.Requested = asked(addrs("10.1.0.77", "fd00::77")...)
	if err := b.run(call.VerbAdd, target); err != nil {
		t.Fatal(err)
	}
	b.holdsFiles("10.1.0.2", "10.1.0.77", "fd00::2", "fd00::77")
	if err := b.run(call.VerbDel, target); err != nil {
		t.Fatal(err)
	}
	b.holdsFiles()
}

// Trap in the table: DEL fails if the ipam configuration is broken.
func TestADelOfTheRealHostLocalFailsWithABrokenConfigurationAndWorksWithTheRecordedOne(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	recorded := b.call("id")
	if err := b.run(call.VerbAdd, recorded); err != nil {
		t.Fatal(err)
	}
	today := recorded
	today.Invocation.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"net","ipam":{"type":"host-local","dataDir":"` + b.scripts + `","ranges":[[{"subnet":"nonsense"}]]}}`)
	wantError(t, b.run(call.VerbDel, today), call.Refused, "")
	b.holdsFiles("10.1.0.2", "fd00::2")
	if err := b.run(call.VerbDel, recorded); err != nil {
		t.Fatal(err)
	}
	b.holdsFiles()
}

// Trap: unknown CNI_ARGS keys without IgnoreUnknown=1.
func TestTheRealHostLocalRefusesUnknownArgsWithoutIgnoreUnknown(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	target.Invocation.Args += ";K8S_POD_NAME=pod"
	if err := b.run(call.VerbAdd, target); err != nil {
		t.Errorf("with IgnoreUnknown=1, which every context has: %v", err)
	}
	target.ContainerID, target.Invocation.Args = "another", "K8S_POD_NAME=pod"
	wantError(t, b.run(call.VerbAdd, target), call.Refused, "unknown args")
}

// Trap: its lock has no time limit.
func TestTheLockOfTheRealHostLocalHasNoTimeLimitSoOursEndsTheCall(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	dir := filepath.Join(b.scripts, "net")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	b.runner.opts.Timeout = 100 * time.Millisecond
	wantError(t, b.run(call.VerbAdd, target), call.Unknown, "--plugin-timeout")
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	b.runner.opts.Timeout = time.Minute
	if err := b.run(call.VerbDel, target); err != nil {
		t.Error(err)
	}
	b.holdsFiles()
}

// Trap: CHECK only tests presence, so that a store older than our journal passes.
func TestCheckOfTheRealHostLocalSucceedsForAnotherAddress(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	target.PrevResult = got.Raw
	dir := filepath.Join(b.scripts, "net")
	if err := os.Rename(filepath.Join(dir, "10.1.0.2"), filepath.Join(dir, "10.1.0.99")); err != nil {
		t.Fatal(err)
	}
	if err := b.run(call.VerbCheck, target); err != nil {
		t.Errorf("got %v, want the success that the profile does not take for proof", err)
	}
	if got := target.Invocation.Profile.CheckProves; got != "presence" {
		t.Errorf("the profile says that CHECK proves %q, want \"presence\"", got)
	}
}

// Trap: GC (spec 1.1) by the container runtime. host-local's does nothing yet.
func TestGCByARuntimeFreesNothingOfTheRealHostLocal(t *testing.T) {
	b := realBench(t, dualStack, `{}`)
	target := b.call("id")
	if err := b.run(call.VerbAdd, target); err != nil {
		t.Fatal(err)
	}
	stdout, exit := b.byHand("GC", target, gcConfig(t, target))
	if exit != 0 {
		t.Errorf("GC: exit status %d: %s", exit, stdout)
	}
	b.holdsFiles("10.1.0.2", "fd00::2")
}

// gcConfig is the configuration of a GC by somebody who has no attachments.
func gcConfig(t *testing.T, c call.Call) []byte {
	t.Helper()
	config, err := extend(c.Invocation.Config, map[string]json.RawMessage{"cni.dev/valid-attachments": json.RawMessage(`[]`)})
	if err != nil {
		t.Fatal(err)
	}
	return config
}
