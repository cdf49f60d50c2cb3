package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestVersionIsSharedAndCached(t *testing.T) {
	f := newFake(t)
	begun := f.fifo("begun")
	f.script(call.VerbVersion, `{"announce":"begun","gate":"go"}`)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if _, err := f.newInvocation("id"); err != nil {
				t.Error(err)
			}
		})
	}
	begun()
	f.write("go", "")
	callers.Wait()
	f.invocation("another")
	f.wantCalls(call.VerbVersion, 1)
}

func TestVersionOfReplacedBinary(t *testing.T) {
	f := newFake(t)
	f.invocation("id")
	data, err := os.ReadFile(os.Getenv(harness.EnvScripted))
	check.Must(t, err)
	next := filepath.Join(f.bin, "next")
	harness.WriteProgram(t, next, data)
	check.Must(t, os.Rename(next, filepath.Join(f.bin, fakeType)))
	f.script(call.VerbVersion, `{"versions":["0.4.0"]}`)
	if got := f.invocation("id").CNIVersion; got != "0.4.0" {
		t.Errorf("got CNI version %s, want 0.4.0 of the new binary", got)
	}
}

// A caller that leaves does not end VERSION for the others.
func TestVersionCancelled(t *testing.T) {
	f := newFake(t)
	begun := f.fifo("begun")
	f.script(call.VerbVersion, `{"announce":"begun","gate":"go"}`)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := f.runner.NewInvocation(ctx, f.network, "id", "owner")
		left <- err
	}()
	begun()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the cancellation", err)
	}
	f.write("go", "")
	f.invocation("id")
	f.wantCalls(call.VerbVersion, 1)
}

// A plugin that is replaced by an older one, or a wrapper that runs one, refuses the version of the ADD.
func TestVersionOfOlderPlugin(t *testing.T) {
	f := newFake(t)
	c := f.call("id")
	c.PrevResult = f.add(c).Raw
	f.script(call.VerbVersion, `{"versions":["0.4.0","1.0.0"]}`)
	for _, verb := range []string{call.VerbCheck, call.VerbDel} {
		f.must(c, verb)
		check.Equal(t, "version of "+verb, f.stdin(verb, "cniVersion"), `"1.0.0"`)
		check.Contains(t, f.stdin(verb, "prevResult"), `"cniVersion":"1.0.0"`)
	}
	f.wantHeld()
	f.wantAdd(c, firstIPs)
	check.Equal(t, "version of new calls", f.invocation("another").CNIVersion, "1.0.0")
}
