package delegate

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

func TestOurOwnNamespaceIsRefusedByWhateverName(t *testing.T) {
	own := findOwnNetNS()
	// That of process 1 is refused where we may look at it, because it is known
	// then, and where we may not, because nobody knows what it is.
	for _, path := range []string{"/proc/self/ns/net", "/proc/thread-self/ns/net", byPID(), linkTo(t, "/proc/self/ns/net"), processOne, linkTo(t, processOne)} {
		if err := own.refuse(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names it", path, err)
		}
	}
	for _, path := range []string{DefaultNetNS, "/proc/self/ns/mnt", t.TempDir()} {
		if err := own.refuse(path); err != nil {
			t.Errorf("%s: got %v, want it accepted", path, err)
		}
	}
}

// processOne is the namespace of the machine, or of the container.
const processOne = "/proc/1/ns/net"

// byPID is our own namespace as another process would name it.
func byPID() string { return fmt.Sprintf("/proc/%d/ns/net", os.Getpid()) }

// Trap: our own namespace leaks an address, also by a name that no /proc has.
func TestABindMountOfOurOwnNamespaceIsRefused(t *testing.T) {
	path := mountOfOurs(t)
	if err := findOwnNetNS().refuse(path); err == nil {
		t.Error("got nil, want an error")
	}
}

// needEphemeral ends a test where we may make no namespace.
func needEphemeral(t *testing.T) {
	t.Helper()
	if err := new(netnsProbe).try(); err != nil {
		lackRight(t, "network namespaces cannot be made here", err)
	}
}

func TestAnEphemeralNamespaceIsInheritedAndNoThreadOfOursStaysInIt(t *testing.T) {
	needEphemeral(t)
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(o *Options) { o.NetNS = EphemeralNetNS })
	target := b.call("id")
	if target.Invocation.NetNS != EphemeralNetNS {
		t.Errorf("the context records %q, want %q", target.Invocation.NetNS, EphemeralNetNS)
	}
	var calls sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		c := call.Call{ContainerID: id, Invocation: target.Invocation}
		calls.Go(func() {
			if _, err := b.runner.Add(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	for _, c := range b.calls(call.VerbAdd) {
		if got := c.Env["CNI_NETNS"]; got != ephemeralPath {
			t.Errorf("got CNI_NETNS %q, want %q", got, ephemeralPath)
		}
	}
	inEveryThread(t, before)
}

func TestThePluginCanOpenItsEphemeralNamespace(t *testing.T) {
	needEphemeral(t)
	b := newBench(t, func(o *Options) { o.NetNS = EphemeralNetNS })
	target := b.call("id")
	target.Invocation.Binary = filepath.Join(b.bin, "shell")
	script := "#!/bin/sh\nreadlink \"$CNI_NETNS\" >&2\nreadlink /proc/self/ns/net >&2\nexit 5\n"
	if err := os.WriteFile(target.Invocation.Binary, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	e := wantError(t, b.run(call.VerbDel, target), call.Unknown, "exit status 5")
	// The shell's child resolves /proc/self for itself, and has inherited the descriptor too.
	f := strings.Fields(e.Stderr)
	if len(f) != 2 || !strings.HasPrefix(f[0], "net:[") || f[0] == f[1] {
		t.Errorf("got namespaces %q, want the ephemeral one and another that the plugin runs in", e.Stderr)
	}
}

func TestTheMainThreadIsNeverMovedIntoANamespace(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * runtime.NumCPU() {
		ns, err := newNetNS()
		if err != nil {
			lackRight(t, "network namespaces cannot be made here", err)
		}
		ns.Close()
	}
	inEveryThread(t, before)
}

// inEveryThread checks the namespace of the process and of the thread that the
// test happens to run in.
func inEveryThread(t *testing.T, want string) {
	t.Helper()
	for _, path := range []string{"/proc/self/ns/net", "/proc/thread-self/ns/net"} {
		if got, err := os.Readlink(path); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", path, got, err, want)
		}
	}
}
