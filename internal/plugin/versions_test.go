package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestNegotiate(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"the plugin supports all":                  {`{}`, "1.1.0"},
		"the plugin supports an unknown one":       {`{"versions":["0.4.0","7.0.0"]}`, "0.4.0"},
		"the list is not in order":                 {`{"versions":["1.0.0","0.3.1","0.4.0"]}`, "1.0.0"},
		"the plugin is older than the conflist":    {`{"versions":["0.1.0","0.2.0"]}`, "0.2.0"},
		"the plugin responds in the form of 0.2.0": {`{"stdout":"{\"cniVersion\":\"0.2.0\"}"}`, "0.2.0"},
		"the plugin has no VERSION":                {`{"error":{"code":100,"msg":"unknown CNI_COMMAND: VERSION"}}`, "0.1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.script(call.VerbVersion, c.script)
			got := f.invocation("id")
			if got.CNIVersion != c.want {
				t.Errorf("got CNI version %s, want %s", got.CNIVersion, c.want)
			}
			var config struct{ CNIVersion string }
			if err := json.Unmarshal(got.Config, &config); err != nil || config.CNIVersion != c.want {
				t.Errorf("got %q in the configuration (%v), want %s", config.CNIVersion, err, c.want)
			}
		})
	}
}

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

// A failure is reported with the plugin's own text, and is not cached.
func TestVersionFailure(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		outcome call.Outcome
		want    string
	}{
		"refused":       {`{"times":1,"error":` + goodError + `}`, call.Refused, "refused (code 999): no; none left"},
		"crash":         {`{"times":1,"exitCode":2,"stderr":"panic: no such thing"}`, call.Unknown, "panic: no such thing"},
		"not JSON":      {`{"times":1,"stdout":"hello"}`, call.Unknown, "VERSION"},
		"no versions":   {`{"times":1,"stdout":"{\"cniVersion\":\"1.0.0\"}"}`, call.Unknown, "VERSION"},
		"two documents": {`{"times":1,"stdout":"{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}{}"}`, call.Unknown, "VERSION"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.script(call.VerbVersion, c.script)
			_, err := f.newInvocation("id")
			if e := wantError(t, err, c.outcome, c.want); e.Verb != call.VerbVersion {
				t.Errorf("got an error of %s, want of VERSION", e.Verb)
			}
			wantText(t, err, `network "net"`, "plugin scripted VERSION")
			f.wantCalls(call.VerbAdd, 0)
			f.invocation("id")
		})
	}
}

// kube-node runs host-local from CNI_PATH and ignores that it is not there.
func TestVersionNeedsPath(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		ok     bool
	}{
		"prints nothing for a dummy path": {`{"times":1,"exitCode":0}`, true},
		"prints nothing at all":           {`{"exitCode":0}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.script(call.VerbVersion, c.script)
			if _, err := f.newInvocation("id"); (err == nil) != c.ok {
				t.Errorf("got error %v, want success %t", err, c.ok)
			}
			var paths []string
			for _, made := range f.calls(call.VerbVersion) {
				paths = append(paths, made.Env["CNI_PATH"])
			}
			if want := []string{"dummy", f.bin}; !slices.Equal(paths, want) {
				t.Errorf("VERSION was called with CNI_PATH %q, want %q", paths, want)
			}
		})
	}
}

// That no version is common is a result, which stays until the binary is replaced.
func TestNoCommonVersion(t *testing.T) {
	f := newFake(t)
	f.script(call.VerbVersion, `{"times":1,"stdout":"{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"7.0.0\"]}"}`)
	_, err := f.newInvocation("id")
	wantText(t, err, `"7.0.0"`, `"1.1.0"`)
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

func TestPluginBelow040(t *testing.T) {
	f := newFake(t)
	f.script(call.VerbVersion, `{"versions":["0.1.0","0.2.0","0.3.0","0.3.1"]}`)
	target := f.call("id")
	if got := target.Invocation; got.CNIVersion != "0.3.1" || got.HasCheck() || got.HasStatus() {
		t.Errorf("got CNI version %s with CHECK %v and STATUS %v, want 0.3.1 with neither", got.CNIVersion, got.HasCheck(), got.HasStatus())
	}
	target.PrevResult = f.wantAdd(target, firstIPs).Raw
	f.must(target, call.VerbStatus, call.VerbDel)
	f.wantHeld()
	if got := f.stdin(call.VerbDel, "prevResult"); got != "" {
		t.Errorf("DEL got prevResult %s, which CNI 0.3.1 does not have", got)
	}
	f.wantCalls(call.VerbStatus, 0)
	f.wantCalls(call.VerbCheck, 0)
}
