package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Wait(); r.Exit.String() != "exit status 4" {
		t.Errorf("got %s", r.Exit)
	}
}

// realPlugins names the directory of the real plugins.
const realPlugins = "DELEGATED_IPAM_TEST_PLUGINS"

// If the sidecar is killed, the plugin reads the end of its input, which is not a configuration.
func TestPrestartedFailsWithoutConfig(t *testing.T) {
	bin := os.Getenv(realPlugins)
	if bin == "" {
		t.Skipf("%s is not set; it names a directory of real plugins (make plugins)", realPlugins)
	}
	c := Command{
		Path:    filepath.Join(bin, "host-local"),
		Env:     []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=id", "CNI_NETNS=/var/run/netns/none", "CNI_IFNAME=eth0", "CNI_PATH=" + bin},
		Timeout: time.Minute, Pidfd: PidfdUsable(),
	}
	p, err := c.Prestart()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(p.config); err != nil { // as the kernel does when we are killed
		t.Fatal(err)
	}
	if r := p.Wait(); r.Exit.Success() || !strings.Contains(string(r.Stdout), `"code"`) {
		t.Errorf("it ended with %v and %s, want a CNI error", r.Exit, r.Stdout)
	}
}

func TestSendConfigFails(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		config string
	}{
		"too long": {"exec cat", strings.Repeat("x", MaxConfig+1)},
		"ended":    {"exit 0", "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := script(t, c.script).Prestart()
			if err != nil {
				t.Fatal(err)
			}
			for name == "ended" && !p.child.hasEnded() {
				time.Sleep(time.Millisecond)
			}
			if p.SendConfig([]byte(c.config)) {
				t.Error("the configuration was sent, want false")
			}
			p.Discard()
			wantEmpty(t, p.PID())
		})
	}
}

func TestRunsLike(t *testing.T) {
	c := script(t, "exec cat")
	p, err := c.Prestart()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Discard()
	otherEnv, otherPath := c, c
	otherEnv.Env = append([]string{"A=b"}, c.Env...)
	otherPath.Path += "2"
	for name, is := range map[string]struct {
		cmd  Command
		want bool
	}{"same": {c, true}, "other environment": {otherEnv, false}, "other executable": {otherPath, false}} {
		if got := p.RunsLike(is.cmd); got != is.want {
			t.Errorf("%s: got %v, want %v", name, got, is.want)
		}
	}
}
