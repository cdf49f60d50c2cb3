package plugin

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/internal/process"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestUnknownExitStatus(t *testing.T) {
	x := newFake(t).runner.execution(call.VerbDel, call.Call{})
	_, err := x.interpret(process.Result{Err: unix.ECHILD})
	wantError(t, err, call.Unknown, "its exit status is unknown: no child processes")
}

// Trap: host-local that is killed while it writes leaves a file that no verb frees, so that a plugin
// gets SIGTERM before it is killed.
//
//evidence:operate/security it hangs, ignores SIGTERM, leaves its process group, or a child that keeps its output open
func TestHungPluginIsTerminated(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
	}{
		"by SIGTERM":                {`{"hang":true}`, time.Hour},
		"by SIGKILL":                {`{"hang":true,"ignoreTerm":true}`, time.Millisecond},
		"after it printed a result": {`{"hang":true,"result":` + goodResult + `}`, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(o *Options) { o.Grace = c.grace })
			target := f.call("id")
			f.script(call.VerbAdd, c.script)
			f.runner.opts.Timeout = 50 * time.Millisecond
			wantError(t, f.run(call.VerbAdd, target), call.Unknown, "did not end within 50ms (--plugin-timeout) and was terminated; some plugins wait like this when their range is full")
			f.runner.opts.Timeout = time.Minute
			f.must(target, call.VerbDel)
		})
	}
}

// Trap: a child that holds stdout holds invoke.RawExec beyond its context, and with it the lock of
// the attachment.
//
//evidence:operate/security it hangs, ignores SIGTERM, leaves its process group, or a child that keeps its output open
func TestChildWithStdoutDoesNotBlock(t *testing.T) {
	f := newFake(t)
	t.Cleanup(func() { f.write("end", "") })
	target := f.call("id")
	f.script(call.VerbAdd, `{"holdStdout":"end","result":`+goodResult+`}`)
	f.wantAdd(target, "10.1.0.9/24 via 10.1.0.1")
	f.wantUnlocked("id")
}

// tryLock locks a container ID, unlocks it, and returns an error if it was locked before.
func (f *fixture) tryLock(id string) error {
	ctx, cancel := context.WithCancel(f.t.Context())
	cancel() // a wait for the lock ends immediately
	lock, err := f.runner.locks.Lock(ctx, id)
	if err == nil {
		lock.Unlock()
	}
	return err
}

// wantUnlocked fails the test if a container ID is locked.
func (f *fixture) wantUnlocked(id string) {
	f.t.Helper()
	if err := f.tryLock(id); err != nil {
		f.t.Errorf("container ID %s is locked: %v", id, err)
	}
}

// wantLocked fails the test if a container ID is not locked.
func (f *fixture) wantLocked(id string) {
	f.t.Helper()
	if err := f.tryLock(id); !errors.Is(err, context.Canceled) {
		f.t.Fatalf("container ID %s is not locked: %v", id, err)
	}
}

// Only a call that has not started is cancelled.
func TestCancelledCall(t *testing.T) {
	f := newFake(t)
	target := f.call("id")
	begun := f.fifo("begun")
	f.script(call.VerbAdd, `{"announce":"begun","gate":"go"}`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := f.runner.Add(ctx, target)
		done <- err
	}()
	begun()
	cancel()
	f.write("go", "")
	if err := <-done; err != nil {
		t.Errorf("got %v, want the result of the call that had started", err)
	}
	_, err := f.runner.Add(ctx, target)
	wantError(t, err, call.NotStarted, "context canceled")
	f.wantCalls(call.VerbAdd, 1)
}

func TestCallLog(t *testing.T) {
	logger, lines := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	f := newFake(t, func(o *Options) { o.Log = logger.WithField("of", "the caller") })
	target := f.call("id")
	ctx := logging.WithRequestID(t.Context(), "abc")
	check.Must(t, f.runner.Del(ctx, target))
	// A field without a value is left out, so that a line has no "error=<nil>" and no "owner=".
	got := slices.Sorted(maps.Keys(lines.LastEntry().Data))
	if want := []string{"containerID", "duration", "exit", "of", "plugin", "requestID", "verb"}; !slices.Equal(got, want) {
		t.Errorf("got the fields %q, want %q", got, want)
	}

	target.Owner, target.Pool = "health", "default"
	f.script(call.VerbDel, `{"error":`+goodError+`,"stderr":"trouble"}`)
	err := wantError(t, f.runner.Del(ctx, target), call.Refused, "999")
	line := lines.LastEntry()
	if line.Message != "Plugin call ended" || line.Level != logrus.DebugLevel {
		t.Fatalf("got the line %v, want the call's", line)
	}
	for field, want := range map[string]any{
		"owner": "health", "poolName": "default", "containerID": "id", "plugin": fakeType, "verb": "DEL",
		"exit": "exit status 1", "stderr": "trouble", "error": err, "of": "the caller", "requestID": "abc",
	} {
		if got := line.Data[field]; got != want {
			t.Errorf("%s: got %v, want %v", field, got, want)
		}
	}
	if took, ok := line.Data["duration"].(time.Duration); !ok || took <= 0 {
		t.Errorf("duration: got %v, want how long it took", line.Data["duration"])
	}
}
