package delegate

import (
	"os/exec"
	"testing"
	"time"
)

func TestTheEndOfAProcessIsSeenWithAndWithoutAHandleOfIt(t *testing.T) {
	t.Parallel()
	for name, withHandle := range map[string]bool{"with a handle": true, "without one, as before Linux 5.4": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := newCapture(&bounded{limit: maxStdout})
			if err != nil {
				t.Fatal(err)
			}
			errs, err := newCapture(&tail{limit: maxWords})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("cat") // it ends with its stdin
			cmd.Stdout, cmd.Stderr = out.w, errs.w
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out.w.Close()
			errs.w.Close()
			w := &watch{pid: cmd.Process.Pid, streams: [2]*capture{out, errs}}
			judge := func() {
				if !withHandle {
					w.handle = none
				}
				if ended, err := w.until(time.Now().Add(3 * settle)); ended || err != nil {
					t.Errorf("it has ended: %v, %v; want it to wait for its stdin", ended, err)
				}
				if _, err := stdin.Write([]byte("words")); err != nil {
					t.Error(err)
				}
				stdin.Close()
				if ended, err := w.until(time.Now().Add(long)); !ended || err != nil {
					t.Errorf("it has ended: %v, %v; want its end", ended, err)
				}
			}
			w.over(cmd.Process, judge)
			if err := out.finish(); err != nil {
				t.Error(err)
			}
			if err := errs.finish(); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if got := out.keep.(*bounded).kept; string(got) != "words" {
				t.Errorf("it printed %q; want %q", got, "words")
			}
		})
	}
}
