package delegate

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

func TestTheEndOfAProcessIsSeenWithAndWithoutAHandleOfIt(t *testing.T) {
	t.Parallel()
	for name, withHandle := range map[string]bool{"with a handle": true, "without one, as before Linux 5.3": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := newCapture(kept{limit: maxStdout})
			if err != nil {
				t.Fatal(err)
			}
			errs, err := newCapture(kept{limit: maxWords, last: true})
			if err != nil {
				t.Fatal(err)
			}
			stdin, theirs := pipe(t)
			// It ends with its stdin.
			p := program{path: lookPath(t, "cat"), handles: withHandle}
			child, err := p.fork([]uintptr{theirs.Fd(), uintptr(out.w), uintptr(errs.w)})
			if err != nil {
				t.Fatal(err)
			}
			if (child.handle != none) != withHandle {
				t.Errorf("its handle is %d", child.handle)
			}
			theirs.Close()
			out.handOver()
			errs.handOver()
			w := &watch{process: child, streams: [2]*capture{out, errs}}
			if ended, err := w.until(time.Now().Add(3 * settle)); ended || err != nil {
				t.Errorf("it has ended: %v, %v; want it to wait for its stdin", ended, err)
			}
			if _, err := stdin.WriteString("words"); err != nil {
				t.Error(err)
			}
			stdin.Close()
			if ended, err := w.until(time.Now().Add(long)); !ended || err != nil {
				t.Errorf("it has ended: %v, %v; want its end", ended, err)
			}
			if err := out.finish(); err != nil {
				t.Error(err)
			}
			if err := errs.finish(); err != nil {
				t.Error(err)
			}
			if end, err := w.reap(); err != nil || !end.success() {
				t.Errorf("it ended with %s, %v; want success", end, err)
			}
			if got := out.bytes; string(got) != "words" {
				t.Errorf("it printed %q; want %q", got, "words")
			}
		})
	}
}

// pipe returns both ends, of which the second is the plugin's to read.
func pipe(t *testing.T) (w, r *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return w, r
}

func lookPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCallsEndAlikeWithoutHandlesOfProcesses(t *testing.T) {
	b := newBench(t)
	b.runner.handles = false
	target := b.call("id")
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	target.PrevResult = got.Raw
	b.must(call.VerbCheck, target)
	b.script(call.VerbDel, `{"hang":true}`)
	b.runner.opts.Timeout = 50 * time.Millisecond
	wantError(t, b.run(call.VerbDel, target), call.Unknown, "did not end within 50ms")
}

func TestHowAProcessOfSomebodyElseEndedIsNoSuccess(t *testing.T) {
	_, err := process{pid: os.Getppid(), handle: none}.reap()
	if !errors.Is(err, unix.ECHILD) {
		t.Fatalf("got %v, want %v", err, unix.ECHILD)
	}
	x := newBench(t).runner.execution(call.VerbDel, call.Call{})
	_, err = x.judge(program{}, ending{unknown: err})
	wantError(t, err, call.Unknown, "how it ended cannot be told: wait4: no child processes")
}

func TestHowAProcessEndedIsSaidInTheWordsOfGo(t *testing.T) {
	for status, want := range map[unix.WaitStatus]string{
		0: "exit status 0", 0x4d00: "exit status 77", 9: "signal: killed", 0x8b: "signal: segmentation fault (core dumped)",
	} {
		if got := (exit{status}).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
