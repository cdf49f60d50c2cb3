package process

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestClosedStdoutIsNotTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		script   string
		timeout  time.Duration
		timedOut bool
		exit     string
	}{
		"exits":     {"exec >&-\nsleep 0.01\nexit 4", time.Minute, false, "exit status 4"},
		"times out": {"exec >&-\nexec sleep 1000", 50 * time.Millisecond, true, "signal: terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := script(t, c.script)
			cmd.Timeout = c.timeout
			if _, r := run(t, cmd); r.TimedOut != c.timedOut || r.Exit.String() != c.exit {
				t.Errorf("got %+v (%s), want %s", r, r.Exit, c.exit)
			}
		})
	}
}

func TestUnreadStdinDoesNotBlock(t *testing.T) {
	p, err := script(t, "exit 4").Start([]byte(strings.Repeat("x", 1<<20)))
	check.Must(t, err)
	if r := p.Wait(); r.Exit.String() != "exit status 4" {
		t.Errorf("got %s", r.Exit)
	}
}

//evidence:operate/security it prints endlessly, no result, or more than 64 addresses
func TestOutput(t *testing.T) {
	for name, c := range map[string]struct {
		keepTail bool
		writes   []string
		want     string
		exceeded bool
	}{
		"up to the limit":          {false, []string{"abc", "de"}, "abcde", false},
		"over it in two writes":    {false, []string{"abc", "def"}, "abc", true},
		"over it in one write":     {false, []string{"abcdef"}, "", true},
		"tail up to the limit":     {true, []string{"abc", "de"}, "abcde", false},
		"tail of three writes":     {true, []string{"abc", "def", "g"}, "cdefg", false},
		"tail of one larger write": {true, []string{"abcdefgh"}, "defgh", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := output{limit: 5}
			if !c.keepTail {
				o.exceeded = make(chan struct{})
			}
			within := true
			for _, w := range c.writes {
				within = o.add([]byte(w))
			}
			if string(o.bytes) != c.want || within == c.exceeded || isClosed(o.exceeded) != c.exceeded {
				t.Errorf("got %q, within its limit: %v; want %q, exceeded %v", o.bytes, within, c.want, c.exceeded)
			}
		})
	}
}

// More than a pipe holds is read while the process runs; what a descendant prints later is not waited for.
func TestOutputIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		script         string
		stdout, stderr int
	}{
		"nothing":              {"exit 0", 0, 0},
		"less than a pipe":     {"head -c 5000 /dev/zero; head -c 3000 /dev/zero >&2", 5000, 3000},
		"more than both pipes": {"head -c 200000 /dev/zero >&2; head -c 300000 /dev/zero", 300_000, MaxStderr},
		"a child has the pipe": {"head -c 5000 /dev/zero; sleep 5 &", 5000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			pid, r := run(t, script(t, c.script))
			_ = unix.Kill(-pid, unix.SIGKILL) // a child
			if !r.Exit.Success() || len(r.Stdout) != c.stdout || len(r.Stderr) != c.stderr {
				t.Errorf("got %d and %d bytes (%s), want %d and %d", len(r.Stdout), len(r.Stderr), r.Exit, c.stdout, c.stderr)
			}
		})
	}
}
