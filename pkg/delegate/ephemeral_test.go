package delegate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// reportNetNS says which namespace a call was given, and that it has begun; it
// ends when it is told to. The other ends of begun and go are the test's.
const reportNetNS = `#!/bin/sh
stat -L -c 'net:[%i]' "$CNI_NETNS" >"$0.$CNI_CONTAINERID"
: >"$0.$CNI_CONTAINERID.begun"
read -r _ <"$0.$CNI_CONTAINERID.go"
`

// The kernel gives the number of a namespace that is gone to another one. So the
// two calls run at the same time: what has two numbers then is two.
func TestCallsAtOnceHaveEphemeralNamespacesOfTheirOwnAndNothingIsLeftOfThem(t *testing.T) {
	needEphemeral(t)
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(o *Options) { o.NetNS = EphemeralNetNS })
	target := b.call("id")
	target.Invocation.Binary = filepath.Join(b.bin, "report")
	if err := os.WriteFile(target.Invocation.Binary, []byte(reportNetNS), 0o755); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	first, endFirst := b.held(&calls, target.Invocation, "first")
	second, endSecond := b.held(&calls, target.Invocation, "second")
	if first == second || first == ours || second == ours || !strings.HasPrefix(first, "net:[") || !strings.HasPrefix(second, "net:[") {
		t.Errorf("two calls at once work in %q and %q, we in %q; want three namespaces", first, second, ours)
	}
	// Whoever made another mount of it could do so only while it is there.
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{first, second} {
		if strings.Contains(string(mounts), " "+ns+" ") {
			t.Errorf("%s is mounted, so it stays when the call is over", ns)
		}
	}
	endFirst()
	endSecond()
	calls.Wait()
	wantNoNetNSOpen(t)
	harness.Eventually(t, "every thread to be in our namespace", func() error { return strayThread(ours) })
}

// held starts a call that goes on until it is ended, and returns the namespace
// that it was given.
func (b *bench) held(calls *sync.WaitGroup, c call.Invocation, id string) (netns string, end func()) {
	b.t.Helper()
	begun := b.fifo("../report." + id + ".begun")
	b.fifo("../report." + id + ".go")
	calls.Go(func() {
		if err := b.run(call.VerbDel, call.Call{ContainerID: id, Invocation: c}); err != nil {
			b.t.Error(err)
		}
	})
	begun()
	said, err := os.ReadFile(c.Binary + "." + id)
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimSpace(string(said)), func() {
		if err := os.WriteFile(c.Binary+"."+id+".go", []byte("\n"), 0); err != nil {
			b.t.Error(err)
		}
	}
}

// wantNoNetNSOpen fails the test for each descriptor of this process that keeps
// a network namespace.
func wantNoNetNSOpen(t *testing.T) {
	t.Helper()
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(open) == 0 {
		t.Fatalf("got descriptors %q, %v", open, err)
	}
	for _, fd := range open {
		// One that was closed since cannot be read, and keeps nothing.
		if what, err := os.Readlink(fd); err == nil && strings.HasPrefix(what, "net:[") {
			t.Errorf("%s keeps the namespace %s", fd, what)
		}
	}
}

// strayThread returns an error if a thread of this process is in another
// namespace than ours. One that made a namespace ends in its own time.
func strayThread(ours string) error {
	all, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(all) == 0 {
		return fmt.Errorf("got threads %q, %w", all, err)
	}
	for _, thread := range all {
		if in, err := os.Readlink(thread); err == nil && in != ours {
			return fmt.Errorf("%s is %s", thread, in)
		}
	}
	return nil
}

func TestAProbeForANamespaceIsMadeOnceAndLeavesNothing(t *testing.T) {
	needEphemeral(t)
	var probe netnsProbe
	if err := probe.try(); err != nil || !probe.passed.Load() {
		t.Errorf("got %v, and passed is %v; want it remembered that one could be made", err, probe.passed.Load())
	}
	wantNoNetNSOpen(t)
}
