package process

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPoller(t *testing.T) {
	for name, pidfd := range map[string]bool{"pidfd": true, "no pidfd, as before Linux 5.3": false} {
		t.Run(name, func(t *testing.T) {
			cat, err := exec.LookPath("cat")
			if err != nil {
				t.Fatal(err)
			}
			p, err := Command{Path: cat, Pidfd: pidfd}.Prestart() // it ends with its stdin
			if err != nil {
				t.Fatal(err)
			}
			if (p.child.pidfd != noFD) != pidfd {
				t.Errorf("its pidfd is %d", p.child.pidfd)
			}
			poll := p.poller()
			if ended, err := poll.waitUntil(time.Now().Add(3 * pollInterval)); ended || err != nil {
				t.Errorf("it has ended: %v, %v; want it to wait for its stdin", ended, err)
			}
			if !p.SendConfig([]byte("words")) {
				t.Error("it got no configuration")
			}
			if ended, err := poll.waitUntil(time.Now().Add(maxPoll)); !ended || err != nil {
				t.Errorf("it has ended: %v, %v; want its end", ended, err)
			}
			if err := errors.Join(p.stdout.drain(), p.stderr.drain()); err != nil {
				t.Error(err)
			}
			if status, err := p.child.reap(); err != nil || !status.Success() {
				t.Errorf("it ended with %s, %v; want success", status, err)
			}
			if got := string(p.stdout.bytes); got != "words" {
				t.Errorf("it printed %q; want %q", got, "words")
			}
		})
	}
}

func TestReapForeignProcess(t *testing.T) {
	_, err := child{pid: os.Getppid(), pidfd: noFD}.reap()
	if !errors.Is(err, unix.ECHILD) {
		t.Errorf("got %v, want %v", err, unix.ECHILD)
	}
}

func TestExitStatus(t *testing.T) {
	for status, want := range map[unix.WaitStatus]string{
		0: "exit status 0", 0x4d00: "exit status 77", 9: "signal: killed", 0x8b: "signal: segmentation fault (core dumped)",
	} {
		if got := (ExitStatus{status}).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
