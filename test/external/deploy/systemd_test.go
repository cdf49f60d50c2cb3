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

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// unit is the service as it is shipped.
func unit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(systemdUnit)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// setting returns the one value of a setting of the service.
func setting(t *testing.T, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(unit(t), -1)
	if len(found) != 1 {
		t.Fatalf("%s is there %d times, want once", name, len(found))
	}
	return found[0][1]
}

// analyze runs systemd-analyze on the unit with the real binary in place of the
// one that is to be installed.
func analyze(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("systemd-analyze was not found")
	}
	file := filepath.Join(t.TempDir(), "delegated-ipam.service")
	text := strings.ReplaceAll(unit(t), "/usr/bin/delegated-ipam", harness.Binary(t))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, append(args, file)...).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
	}
	// What it does not know it only tells.
	if args[0] == "verify" && len(out) > 0 {
		t.Errorf("systemd-analyze %v:\n%s", args, out)
	}
}

func TestSystemdUnderstandsTheUnit(t *testing.T) { analyze(t, "verify", "--man=no") }

// The threshold is ten times the exposure: 2.9 is "OK", 4 and more "MEDIUM".
func TestTheServiceIsExposedLittle(t *testing.T) {
	analyze(t, "security", "--offline=true", "--threshold=29")
}

func TestTheServiceMayStopAsLongAsItsPluginCallsTake(t *testing.T) {
	seconds, err := strconv.Atoi(setting(t, "TimeoutStopSec"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := time.Duration(seconds)*time.Second, patienceOfAStop(t); got < want {
		t.Errorf("it is killed after %s, and waits %s for its plugin calls", got, want)
	}
	// The plugin's process group is the sidecar's to end.
	if got := setting(t, "KillMode"); got != "mixed" {
		t.Errorf("KillMode is %s: a signal to host-local can leave a file that no call frees", got)
	}
}

// It is shut in (ProtectSystem=strict), and so writes where these settings say.
func TestTheServiceMayWriteToItsStateItsSocketsDirAndTheLeases(t *testing.T) {
	for name, want := range map[string]string{
		"ProtectSystem": "strict", "StateDirectory": "delegated-ipam", "ReadWritePaths": "-/var/lib/cni",
		"RuntimeDirectory": "cilium", "RuntimeDirectoryPreserve": "yes", // the agent's sockets are there too
	} {
		if got := setting(t, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// The guard against a second sidecar is an abstract socket of the host's network, and
// plugins look at interfaces there.
func TestTheServiceHasTheHostsNetwork(t *testing.T) {
	if strings.Contains(unit(t), "PrivateNetwork") {
		t.Error("it has a network of its own")
	}
	families := strings.Fields(setting(t, "RestrictAddressFamilies"))
	for _, family := range []string{"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"} {
		if !slices.Contains(families, family) {
			t.Errorf("it may use %v only, want %s too", families, family)
		}
	}
}

func TestTheServiceRunsTheProgramWithOptionsThatItHas(t *testing.T) {
	words := strings.Fields(setting(t, "ExecStart"))
	if words[0] != "/usr/bin/delegated-ipam" {
		t.Fatalf("it runs %s", words[0])
	}
	if out := harness.NewNode(t).Command(t, append(words[1:], "--help")...); out.ExitCode != 0 {
		t.Errorf("%v: exit status %d: %s", words, out.ExitCode, out.Stderr)
	}
}
