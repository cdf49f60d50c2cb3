package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// needEphemeral ends a test where no namespace can be created.
func needEphemeral(t *testing.T) {
	t.Helper()
	if err := new(netnsProbe).try(); err != nil {
		harness.LackRight(t, "network namespaces cannot be created here", err)
	}
}

func ephemeral(o *Options) { o.NetNS = EphemeralNetNS }

// currentNetNS returns the namespace of this process.
func currentNetNS(t *testing.T) string {
	t.Helper()
	ns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// wantNetNS fails the test if the process, or the thread of the test, is in another namespace.
func wantNetNS(t *testing.T, want string) {
	t.Helper()
	for _, path := range []string{"/proc/self/ns/net", "/proc/thread-self/ns/net"} {
		if got, err := os.Readlink(path); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", path, got, err, want)
		}
	}
}

// wantNoNetNSOpen fails the test for each descriptor of this process that keeps a network
// namespace.
func wantNoNetNSOpen(t *testing.T) {
	t.Helper()
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(open) == 0 {
		t.Fatalf("got descriptors %q, %v", open, err)
	}
	for _, fd := range open {
		// One that was closed since cannot be read.
		if what, err := os.Readlink(fd); err == nil && strings.HasPrefix(what, "net:[") {
			t.Errorf("%s keeps the namespace %s", fd, what)
		}
	}
}

func TestEphemeralNetNSPath(t *testing.T) {
	needEphemeral(t)
	before := currentNetNS(t)
	f := newFake(t, ephemeral)
	target := f.call("id")
	if target.Invocation.NetNS != EphemeralNetNS {
		t.Errorf("the invocation has %q, want %q", target.Invocation.NetNS, EphemeralNetNS)
	}
	var calls sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		c := call.Call{ContainerID: id, Invocation: target.Invocation}
		calls.Go(func() {
			if err := f.run(call.VerbAdd, c); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	for _, c := range f.calls(call.VerbAdd) {
		if got := c.Env["CNI_NETNS"]; got != ephemeralPath {
			t.Errorf("got CNI_NETNS %q, want %q", got, ephemeralPath)
		}
	}
	wantNetNS(t, before)
}

func TestEphemeralNetNSIsReadable(t *testing.T) {
	needEphemeral(t)
	f := newFake(t, ephemeral)
	target := f.call("id")
	target.Invocation.Plugin, target.Invocation.Binary = "shell", f.shellPlugin("readlink \"$CNI_NETNS\" >&2\nreadlink /proc/self/ns/net >&2\nexit 5")
	e := wantError(t, f.run(call.VerbDel, target), call.Unknown, "exit status 5")
	// The shell's child resolves /proc/self for itself, and has inherited the descriptor, too.
	namespaces := strings.Fields(e.Stderr)
	if len(namespaces) != 2 || !strings.HasPrefix(namespaces[0], "net:[") || namespaces[0] == namespaces[1] {
		t.Errorf("got namespaces %q, want the ephemeral one and another that the plugin runs in", e.Stderr)
	}
}

// reportNetNS writes the namespace of a call to a file, announces that, and waits for the test.
const reportNetNS = `stat -L -c 'net:[%i]' "$CNI_NETNS" >"$0.$CNI_CONTAINERID"
: >"$0.$CNI_CONTAINERID.begun"
read -r _ <"$0.$CNI_CONTAINERID.go"`

// The kernel gives the number of a removed namespace to a new one. So the two calls run
// concurrently: two numbers are two namespaces then.
func TestEphemeralNetNSPerCall(t *testing.T) {
	needEphemeral(t)
	ours := currentNetNS(t)
	f := newFake(t, ephemeral)
	target := f.call("id")
	target.Invocation.Plugin, target.Invocation.Binary = "shell", f.shellPlugin(reportNetNS)
	var calls sync.WaitGroup
	first, endFirst := f.startInNetNS(&calls, target.Invocation, "first")
	second, endSecond := f.startInNetNS(&calls, target.Invocation, "second")
	if first == second || first == ours || second == ours || !strings.HasPrefix(first, "net:[") || !strings.HasPrefix(second, "net:[") {
		t.Errorf("two concurrent calls work in %q and %q, we in %q; want three namespaces", first, second, ours)
	}
	// Another mount of it could be made only while it exists.
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{first, second} {
		if strings.Contains(string(mounts), " "+ns+" ") {
			t.Errorf("%s is mounted, so it outlasts the call", ns)
		}
	}
	endFirst()
	endSecond()
	calls.Wait()
	wantNoNetNSOpen(t)
	harness.Eventually(t, "every thread to be in our namespace", func() error { return threadsIn(ours) })
}

// startInNetNS starts a call that runs until it is ended, and returns its namespace.
func (f *fixture) startInNetNS(calls *sync.WaitGroup, inv call.Invocation, id string) (netns string, end func()) {
	f.t.Helper()
	begun := f.fifo("../shell." + id + ".begun")
	f.fifo("../shell." + id + ".go")
	calls.Go(func() {
		if err := f.run(call.VerbDel, call.Call{ContainerID: id, Invocation: inv}); err != nil {
			f.t.Error(err)
		}
	})
	begun()
	reported, err := os.ReadFile(inv.Binary + "." + id)
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(reported)), func() {
		if err := os.WriteFile(inv.Binary+"."+id+".go", []byte("\n"), 0); err != nil {
			f.t.Error(err)
		}
	}
}

// threadsIn returns an error if a thread of this process is in another namespace. One that created
// a namespace ends in its own time.
func threadsIn(ours string) error {
	all, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(all) == 0 {
		return errors.Join(fmt.Errorf("got threads %q", all), err)
	}
	for _, thread := range all {
		if ns, err := os.Readlink(thread); err == nil && ns != ours {
			return fmt.Errorf("%s is %s", thread, ns)
		}
	}
	return nil
}

func TestNetNSProbe(t *testing.T) {
	needEphemeral(t)
	var probe netnsProbe
	if err := probe.try(); err != nil || !probe.passed.Load() {
		t.Errorf("got %v, and passed is %v; want the success remembered", err, probe.passed.Load())
	}
	wantNoNetNSOpen(t)
}

// The main thread is never moved into a namespace.
func TestMainThreadNetNS(t *testing.T) {
	before := currentNetNS(t)
	for range 2 * runtime.NumCPU() {
		ns, err := newNetNS()
		if err != nil {
			harness.LackRight(t, "network namespaces cannot be created here", err)
		}
		ns.Close()
	}
	wantNetNS(t, before)
}
