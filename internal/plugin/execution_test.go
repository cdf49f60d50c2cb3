package plugin

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
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

func TestOutcome(t *testing.T) {
	every := []string{call.VerbAdd, call.VerbDel, call.VerbCheck, call.VerbStatus}
	add := []string{call.VerbAdd}
	for name, c := range map[string]struct {
		verbs   []string
		script  string
		outcome call.Outcome
		want    string
	}{
		"error and exit status 1":    {every, `{"error":` + goodError + `}`, call.Refused, "refused (code 999): no; none left"},
		"error and exit status 77":   {every, `{"error":` + goodError + `,"exitCode":77}`, call.Refused, "code 999"},
		"error and exit status 0":    {every, `{"error":` + goodError + `,"exitCode":0}`, call.Unknown, "its exit status is 0"},
		"error with code 0":          {every, `{"error":{"code":0,"msg":"no"}}`, call.Unknown, "not a CNI error"},
		"error with a negative code": {every, `{"error":{"code":-1,"msg":"no"}}`, call.Unknown, "not a CNI error"},
		"result and exit status 1":   {every, `{"result":` + goodResult + `,"exitCode":1}`, call.Unknown, "exit status 1, and stdout is not a CNI error"},
		"result and error":           {every, `{"result":` + goodResult + `,"error":` + goodError + `}`, call.Unknown, "not a CNI error"},
		"exit status 2, no output":   {every, `{"exitCode":2,"stderr":"panic: nil map"}`, call.Unknown, "exit status 2 and nothing on stdout; if each call ends so, look for what a killed one has left in the plugin's store, such as a lock (stderr: panic: nil map)"},
		"stderr with control bytes":  {every, `{"exitCode":2,"stderr":"a\u001b[31m\nlevel=error\u0000b\u0085"}`, call.Unknown, `(stderr: a\x1b[31m level=error\x00b)`},
		"killed after the result":    {every, `{"result":` + goodResult + `,"killSelf":9}`, call.Unknown, "signal: killed"},
		"100 MB on stdout":           {every, `{"stdoutBytes":100000000}`, call.Unknown, "more than 1048576 bytes"},
		"3 MB of stderr":             {every, `{"stderrBytes":3000000,"error":` + goodError + `}`, call.Refused, "code 999"},
		"message with control bytes": {every, `{"error":{"code":100,"msg":"a\nb"}}`, call.Refused, "(code 100): a b"},
		"not JSON":                   {add, `{"stdout":"hello"}`, call.Unknown, "cannot be parsed: invalid character"},
		"no output":                  {add, `{"exitCode":0}`, call.Unknown, "cannot be parsed"},
		"missing uplink": {
			add, `{"result":{"cniVersion":"1.1.0","interfaces":[{"name":"no-such-link"}],"ips":[{"address":"10.1.0.9/24"}]}}`,
			call.Unknown, "no-such-link",
		},
	} {
		for _, verb := range c.verbs {
			t.Run(verb+": "+name, func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				target := f.call("id")
				f.script(verb, c.script)
				e := wantError(t, f.run(verb, target), c.outcome, c.want)
				if e.Verb != verb || e.Plugin != fakeType || (verb != call.VerbStatus && e.ContainerID != "id") {
					t.Errorf("got an error of %s %s %q, want one of %s %s \"id\"", e.Plugin, e.Verb, e.ContainerID, fakeType, verb)
				}
				if len(e.Stderr) > process.MaxStderr || len(e.Msg) > maxMessage {
					t.Errorf("got %d bytes of stderr and %d of message, want at most %d and %d", len(e.Stderr), len(e.Msg), process.MaxStderr, maxMessage)
				}
			})
		}
	}
}

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

func TestNotStarted(t *testing.T) {
	every := []string{call.VerbAdd, call.VerbDel, call.VerbCheck, call.VerbStatus}
	for name, c := range map[string]struct {
		verbs  []string
		change func(*Options)
		binary string
		want   string
	}{
		"missing plugin":        {every, nil, "missing", "no longer exists: failed to find plugin \"missing\""},
		"not executable":        {every, nil, "calls.lock", "mode 0755"},
		"lock file not created": {[]string{call.VerbDel}, func(o *Options) { o.LockFile = filepath.Join(o.BinDirs[0], "no", "such", "directory") }, fakeType, "lock file of plugin calls"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			target := f.call("id")
			f.must(target, call.VerbDel) // creates the lock file
			if c.change != nil {
				f.start(c.change)
			}
			target.Invocation.Plugin, target.Invocation.Binary = c.binary, filepath.Join(f.bin, c.binary)
			for _, verb := range c.verbs {
				wantError(t, f.run(verb, target), call.NotStarted, c.want)
			}
		})
	}
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
