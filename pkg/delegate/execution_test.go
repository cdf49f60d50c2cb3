package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

const (
	goodResult = `{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.9/24","gateway":"10.1.0.1"}]}`
	goodError  = `{"cniVersion":"1.1.0","code":999,"msg":"no","details":"none left"}`
)

// run asks one verb and returns the error.
func (b *bench) run(verb string, c call.Call) error {
	switch verb {
	case call.VerbAdd:
		_, err := b.runner.Add(b.t.Context(), c)
		return err
	case call.VerbDel:
		return b.runner.Del(b.t.Context(), c)
	case call.VerbCheck:
		return b.runner.Check(b.t.Context(), c)
	default:
		return b.runner.Status(b.t.Context(), c.Invocation)
	}
}

// wantError checks outcome and text of an error.
func wantError(t *testing.T, err error, outcome call.Outcome, text string) *call.Error {
	t.Helper()
	var e *call.Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want a *call.Error", err)
	}
	if e.Outcome != outcome {
		t.Errorf("got outcome %q (%v), want %q", e.Outcome, err, outcome)
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("got error %q, want it to say %q", err, text)
	}
	return e
}

// wantText checks that there is an error that says all of the texts.
func wantText(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got error %v, want one that says %q", err, text)
		}
	}
}

func TestAnswersOfAPluginAreJudged(t *testing.T) {
	every := []string{call.VerbAdd, call.VerbDel, call.VerbCheck, call.VerbStatus}
	add := []string{call.VerbAdd}
	for name, c := range map[string]struct {
		verbs   []string
		script  string
		outcome call.Outcome
		text    string
	}{
		"an error document with exit status 1 is a refusal":        {every, `{"error":` + goodError + `}`, call.Refused, "refused (code 999): no; none left"},
		"an error document with exit status 77 is a refusal":       {every, `{"error":` + goodError + `,"exitCode":77}`, call.Refused, "code 999"},
		"an error document with exit status 0 is unknown":          {every, `{"error":` + goodError + `,"exitCode":0}`, call.Unknown, "its exit status is 0"},
		"an error document with code 0 is unknown":                 {every, `{"error":{"code":0,"msg":"no"}}`, call.Unknown, "no CNI error"},
		"an error document with a negative code is unknown":        {every, `{"error":{"code":-1,"msg":"no"}}`, call.Unknown, "no CNI error"},
		"a result with exit status 1 is unknown":                   {every, `{"result":` + goodResult + `,"exitCode":1}`, call.Unknown, "exit status 1, and what it printed is no CNI error"},
		"a result and then an error document is unknown":           {every, `{"result":` + goodResult + `,"error":` + goodError + `}`, call.Unknown, "no CNI error"},
		"a failing exit status without a word is unknown":          {every, `{"exitCode":2,"stderr":"panic: nil map"}`, call.Unknown, "exit status 2 without a word on stdout"},
		"stderr comes into the text":                               {every, `{"exitCode":2,"stderr":"panic: nil map"}`, call.Unknown, "(stderr: panic: nil map)"},
		"stderr is made fit for a log":                             {every, `{"exitCode":2,"stderr":"a\u001b[31m\nlevel=error\u0000b\u0085"}`, call.Unknown, "(stderr: a [31m level=error b)"},
		"a plugin that is killed is unknown":                       {every, `{"killSelf":9}`, call.Unknown, "signal: killed"},
		"a plugin that panics is unknown":                          {every, `{"killSelf":11}`, call.Unknown, "exit status 2 without a word on stdout"},
		"a plugin that is killed after its answer is unknown":      {every, `{"result":` + goodResult + `,"killSelf":9}`, call.Unknown, "signal: killed"},
		"more than a megabyte on stdout is unknown":                {every, `{"stdoutBytes":100000000}`, call.Unknown, "more than 1048576 bytes"},
		"just over a megabyte on stdout is unknown":                {every, `{"stdoutBytes":1048577}`, call.Unknown, "more than 1048576 bytes"},
		"a line of text that is no JSON is unknown":                {add, `{"stdout":"hello"}`, call.Unknown, "cannot be understood"},
		"half a document is unknown":                               {add, `{"stdout":"{\"cniVersion\":"}`, call.Unknown, "cannot be understood"},
		"no word at all is unknown":                                {add, `{"exitCode":0}`, call.Unknown, "cannot be understood"},
		"two results are unknown":                                  {add, `{"result":` + goodResult + `,"stdout":"{}"}`, call.Unknown, "cannot be understood"},
		"a result in a version that nobody knows is unknown":       {add, `{"result":{"cniVersion":"9.9.9","ips":[{"address":"10.1.0.9/24"}]}}`, call.Unknown, "9.9.9"},
		"a result without an address is unknown":                   {add, `{"result":{"cniVersion":"1.1.0"}}`, call.Unknown, "no address"},
		"an address without a prefix length is unknown":            {add, `{"result":{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.9"}]}}`, call.Unknown, "10.1.0.9"},
		"a prefix length that is too long is unknown":              {add, `{"result":{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.9/40"}]}}`, call.Unknown, "10.1.0.9/40"},
		"an address twice in one result is unknown":                {add, `{"result":{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.9/24"},{"address":"10.1.0.9/16"}]}}`, call.Unknown, "10.1.0.9 twice"},
		"an uplink without a MAC that does not exist is unknown":   {add, `{"result":{"cniVersion":"1.1.0","interfaces":[{"name":"no-such-link"}],"ips":[{"address":"10.1.0.9/24"}]}}`, call.Unknown, "no-such-link"},
		"a loud stderr does not get in the way of a refusal":       {every, `{"stderrBytes":3000000,"error":` + goodError + `}`, call.Refused, "code 999"},
		"a refusal's text is bounded and fit for a log":            {every, `{"error":{"code":100,"msg":"a\nb"}}`, call.Refused, "(code 100): a b"},
		"a script that cannot be read is unknown, as any crash is": {every, `{"exitCode":"x"}`, call.Unknown, "exit status 3 without a word"},
	} {
		for _, verb := range c.verbs {
			t.Run(verb+": "+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				target := b.call("id")
				b.script(verb, c.script)
				e := wantError(t, b.run(verb, target), c.outcome, c.text)
				if e.Verb != verb || e.Plugin != pluginType || (verb != call.VerbStatus && e.ContainerID != "id") {
					t.Errorf("got an error of %s %s %q, want one of %s %s \"id\"", e.Plugin, e.Verb, e.ContainerID, pluginType, verb)
				}
				if len(e.Stderr) > maxWords || len(e.Msg) > maxWords {
					t.Errorf("got %d bytes of stderr and %d of message, want at most %d", len(e.Stderr), len(e.Msg), maxWords)
				}
			})
		}
	}
}

// Trap: host-local that is killed while it writes leaves a file that no verb frees,
// so that a plugin is asked to end before it is killed.
func TestAPluginThatDoesNotEndIsEnded(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
	}{
		"by SIGTERM, without SIGKILL, if it obeys":                 {`{"hang":true}`, time.Hour},
		"by SIGKILL if it ignores SIGTERM":                         {`{"hang":true,"ignoreTerm":true}`, time.Millisecond},
		"also if it has closed nothing and printed a whole result": {`{"hang":true,"result":` + goodResult + `}`, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(o *Options) { o.Grace = c.grace })
			target := b.call("id")
			b.script(call.VerbAdd, c.script)
			b.runner.opts.Timeout = 50 * time.Millisecond
			wantError(t, b.run(call.VerbAdd, target), call.Unknown, "did not end within 50ms (--plugin-timeout)")
			b.runner.opts.Timeout = time.Minute
			if err := b.run(call.VerbDel, target); err != nil {
				t.Errorf("DEL after the timeout: %v", err)
			}
		})
	}
}

func TestTheWholeGroupIsEnded(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Grace = time.Millisecond })
	target := b.call("id")
	b.script(call.VerbAdd, `{"hang":true,"ignoreTerm":true,"holdStdout":"never","stdoutBytes":2000000}`)
	wantError(t, b.run(call.VerbAdd, target), call.Unknown, "more than 1048576 bytes")
	group := b.calls(call.VerbAdd)[0].PID
	// SIGKILL takes effect at once, but not before kill(2) returns.
	for tries := 0; hasLiving(t, group); tries++ {
		if tries == 10_000 {
			t.Fatal("a process of the plugin's group is still there")
		}
		runtime.Gosched()
	}
}

// hasLiving tells whether a process group has a member that is no zombie.
func hasLiving(t *testing.T, group int) bool {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		text := string(data)
		f := strings.Fields(text[strings.LastIndex(text, ")")+1:])
		if f[0] != "Z" && f[2] == strconv.Itoa(group) {
			return true
		}
	}
	return false
}

// Trap: a child that holds stdout holds invoke.RawExec beyond its context, and with
// it the turn of the attachment.
func TestAChildThatHoldsStdoutHoldsNobody(t *testing.T) {
	b := newBench(t)
	t.Cleanup(func() { b.write("end", "") })
	target := b.call("id")
	b.script(call.VerbAdd, `{"holdStdout":"end","result":`+goodResult+`}`)
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Addresses) != 1 || got.Addresses[0].Prefix.String() != "10.1.0.9/24" {
		t.Errorf("got %v, want the address 10.1.0.9/24 that was printed before the plugin ended", got.Addresses)
	}
	lock := &idLock{file: openLockFile(t, b), at: position("id")}
	if ok, err := lock.try(); !ok || err != nil {
		t.Errorf("the lock of the container ID is held (%v, %v) by the child of a plugin that has ended in our life", ok, err)
	}
}

func openLockFile(t *testing.T, b *bench) *os.File {
	t.Helper()
	f, err := os.OpenFile(b.opts.LockFile, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestACallThatHasBegunIsNotCancelled(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	begun := b.fifo("begun")
	b.script(call.VerbAdd, `{"announce":"begun","gate":"go"}`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := b.runner.Add(ctx, target)
		done <- err
	}()
	begun()
	cancel()
	b.write("go", "")
	if err := <-done; err != nil {
		t.Errorf("got %v, want the result of the call that had begun", err)
	}
}

func TestACallOfACancelledContextIsNotStarted(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.runner.Add(ctx, target)
	wantError(t, err, call.NotStarted, "context canceled")
	if got := b.calls(call.VerbAdd); len(got) != 0 {
		t.Errorf("the plugin saw %d ADDs, want none", len(got))
	}
}

func TestAPluginThatClosesItsStdoutIsStillWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		timeout time.Duration
		text    string
	}{
		"until it ends":          {"exec >&-\nsleep 0.01\nexit 4\n", time.Minute, "exit status 4"},
		"until the limit passes": {"exec >&-\nexec sleep 1000\n", 50 * time.Millisecond, "--plugin-timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			target := b.call("id")
			target.Invocation.Binary = filepath.Join(b.bin, "shell")
			if err := os.WriteFile(target.Invocation.Binary, []byte("#!/bin/sh\n"+c.script), 0o755); err != nil {
				t.Fatal(err)
			}
			b.runner.opts.Timeout = c.timeout
			wantError(t, b.run(call.VerbDel, target), call.Unknown, c.text)
		})
	}
}

func TestALargeConfigurationThatThePluginDoesNotReadBlocksNobody(t *testing.T) {
	b := newBench(t)
	target := b.call("id")
	target.Invocation.Binary = filepath.Join(b.bin, "unreading")
	if err := os.WriteFile(target.Invocation.Binary, []byte("#!/bin/sh\nexit 4\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	target.Invocation.Config = json.RawMessage(`{"name":"net","cniVersion":"1.1.0","filler":"` + strings.Repeat("x", 1<<20) + `"}`)
	wantError(t, b.run(call.VerbDel, target), call.Unknown, "exit status 4")
}
