package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// unit returns the shipped unit file.
func unit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(systemdUnit)
	check.Must(t, err)
	return string(text)
}

// setting returns the value of a setting, which must occur once.
func setting(t *testing.T, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(unit(t), -1)
	if len(found) != 1 {
		t.Fatalf("%s occurs %d times; want 1", name, len(found))
	}
	return found[0][1]
}

// analyze runs systemd-analyze on the unit, with the path of the binary under test.
func analyze(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		harness.Skipf(t, "no systemd-analyze: %v", err)
	}
	file := filepath.Join(t.TempDir(), "delegated-ipam.service")
	text := strings.ReplaceAll(unit(t), "/usr/bin/delegated-ipam", harness.Binary(t))
	check.Must(t, os.WriteFile(file, []byte(text), 0o644))
	out, err := exec.Command(program, append(args, file)...).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
	}
	// Unknown settings are only warnings.
	if args[0] == "verify" && len(out) > 0 {
		t.Errorf("systemd-analyze %v:\n%s", args, out)
	}
}

func TestUnitVerify(t *testing.T) { analyze(t, "verify", "--man=no") }

// The threshold is ten times the exposure level: 2.9 is "OK", 4 is "MEDIUM".
func TestUnitSecurity(t *testing.T) {
	analyze(t, "security", "--offline=true", "--threshold=29")
}

func TestUnitStopTime(t *testing.T) {
	seconds, err := strconv.Atoi(setting(t, "TimeoutStopSec"))
	check.Must(t, err)
	if got, want := time.Duration(seconds)*time.Second, stopTimeout(t); got < want {
		t.Errorf("TimeoutStopSec is %s, less than the time limit %s for plugin calls", got, want)
	}
	// The daemon terminates the plugin's process group.
	if got := setting(t, "KillMode"); got != "mixed" {
		t.Errorf("KillMode is %s; want mixed, because a signal to host-local can leave a stale lease file", got)
	}
}

// With ProtectSystem=strict the service can write only to the paths in these settings. The lock against a
// second daemon is an abstract socket in the host's network namespace, and plugins read the interfaces there.
func TestUnitSandbox(t *testing.T) {
	for name, want := range map[string]string{
		"Type": "notify", "TimeoutStartSec": "infinity", // a start waits for the state directory
		"ProtectSystem": "strict", "StateDirectory": "delegated-ipam", "ReadWritePaths": "-/var/lib/cni",
		"RuntimeDirectory": "delegated-ipam", "RuntimeDirectoryPreserve": "yes", // pods mount it
	} {
		if got := setting(t, name); got != want {
			t.Errorf("%s is %q; want %q", name, got, want)
		}
	}
	if strings.Contains(unit(t), "PrivateNetwork") {
		t.Error("the service has a private network")
	}
	families := strings.Fields(setting(t, "RestrictAddressFamilies"))
	for _, family := range []string{"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"} {
		if !slices.Contains(families, family) {
			t.Errorf("the address families are %v; want %s too", families, family)
		}
	}
}

func TestUnitExecStart(t *testing.T) {
	words := strings.Fields(setting(t, "ExecStart"))
	if words[0] != "/usr/bin/delegated-ipam" {
		t.Fatalf("ExecStart is %s", words[0])
	}
	if out := harness.NewNode(t).Command(t, append(words[1:], "--help")...); out.ExitCode != 0 {
		t.Errorf("%v: exit status %d: %s", words, out.ExitCode, out.Stderr)
	}
}
