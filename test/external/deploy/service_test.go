package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	systemdProgram = "/lib/systemd/systemd"
	systemdUnit    = "../../../deploy/systemd/delegated-ipam.service"
)

// machine is a set of namespaces whose first process is systemd, with the shipped unit.
type machine struct {
	t   *testing.T
	pid int
}

// newMachine boots a machine with the real host-local. The test is skipped where that is impossible.
func newMachine(t *testing.T) *machine {
	t.Helper()
	for _, program := range []string{systemdProgram, "systemctl", "unshare", "nsenter", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			harness.Skipf(t, "no machine with systemd: %v", err)
		}
	}
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can make a machine with systemd")
	}
	dir, n := t.TempDir(), harness.NewNode(t)
	for _, d := range []string{"bin", "units", "plugins", "net.d", "options"} {
		check.Must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	program, err := os.ReadFile(harness.Binary(t))
	check.Must(t, err)
	harness.WriteProgram(t, filepath.Join(dir, "bin", "delegated-ipam"), program)
	plugin, err := os.ReadFile(filepath.Join(n.BinDir, "host-local"))
	check.Must(t, err)
	harness.WriteProgram(t, filepath.Join(dir, "plugins", "host-local"), plugin)
	files := map[string]string{
		"units/delegated-ipam.service": unit(t),
		"net.d/05-cilium.conflist": `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni",
			"ipam":{"type":"host-local","ranges":[[{"subnet":"10.15.0.0/24"}]]}}]}`,
		"options/enable-ipv6": "false\n",
		"options/node-name":   "machine\n",
	}
	// What every unit depends on, without the units of the host.
	for _, target := range []string{"sysinit", "basic", "local-fs", "shutdown", "multi-user", "umount"} {
		files["units/"+target+".target"] = "[Unit]\nDefaultDependencies=no\n"
	}
	for name, text := range files {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return boot(t, dir)
}

func boot(t *testing.T, dir string) *machine {
	t.Helper()
	group := fmt.Sprintf("delegated-ipam-machine-%d", os.Getpid())
	cmd := exec.Command("bash", "machine.sh", dir)
	cmd.Env = append(os.Environ(), "MACHINE_CGROUP="+group)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	check.Must(t, cmd.Start())
	t.Cleanup(func() {
		check.Must(t, cmd.Process.Kill()) // and with it all processes of the namespace
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the machine's output:\n%s", out.String())
		}
		removeCgroups(t, group)
	})
	m := &machine{t, cmd.Process.Pid}
	harness.Eventually(t, "systemd to respond", func() error {
		_, err := m.run("systemctl", "list-jobs")
		return err
	})
	return m
}

// removeCgroups removes the cgroups of a machine, once the kernel has removed its processes.
func removeCgroups(t *testing.T, group string) {
	t.Helper()
	harness.Eventually(t, "its cgroups to be empty", func() error {
		text, err := exec.Command("sh", "-c", `findmnt -n -o TARGET -t cgroup,cgroup2 | while read -r h; do
			[ ! -d "$h/$0" ] || find "$h/$0" -depth -type d -exec rmdir {} +; done`, group).CombinedOutput()
		if err == nil && len(text) > 0 {
			err = errors.New(string(text))
		}
		return err
	})
}

// run runs a command in the machine and returns its output without the last line break.
func (m *machine) run(args ...string) (string, error) {
	enter := []string{"--target", strconv.Itoa(m.pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--"}
	out, err := exec.Command("nsenter", append(enter, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (m *machine) must(args ...string) string {
	m.t.Helper()
	out, err := m.run(args...)
	check.Must(m.t, err)
	return out
}

func (m *machine) property(name string) string {
	m.t.Helper()
	return m.must("systemctl", "show", "--value", "--property="+name, "delegated-ipam")
}

// allocate returns the address of an owner, once the service is ready.
func (m *machine) allocate(owner string) netip.Addr {
	m.t.Helper()
	var ip netip.Addr
	harness.Eventually(m.t, "an address for "+owner, func() error {
		out, err := m.run("delegated-ipam", "allocate", owner)
		if err != nil {
			return err
		}
		ip, err = netip.ParseAddr(strings.Fields(out)[0])
		return err
	})
	return ip
}

// The service runs with the settings of the unit, which forbid much, over the real host-local. systemd
// starts it again after a kill, and a stop ends it cleanly.
func TestUnitRuns(t *testing.T) {
	m := newMachine(t)
	m.must("systemctl", "start", "delegated-ipam")
	m.must("delegated-ipam", "status") // the start ends when the socket can be used
	ip := m.allocate("router")
	harness.Eventually(t, "systemd to know that it is ready", func() error {
		if text := m.property("StatusText"); text != "Ready" {
			return fmt.Errorf("its status is %q", text)
		}
		return nil
	})
	if out := m.must("cat", "/var/lib/cni/networks/pods/"+ip.String()); !strings.Contains(out, "router") {
		t.Errorf("the lease of %s is %q; want the router's", ip, out)
	}

	before := m.property("MainPID")
	m.must("systemctl", "kill", "--kill-who=main", "--signal=KILL", "delegated-ipam")
	harness.Eventually(t, "another process", func() error {
		if now := m.property("MainPID"); now == before || now == "0" {
			return fmt.Errorf("the main process is %s", now)
		}
		return nil
	})
	if again := m.allocate("router"); again != ip {
		t.Errorf("after a kill the router has %s; want %s", again, ip)
	}

	running := m.property("MainPID")
	if out := m.must("delegated-ipam", "status"); strings.Contains(out, "debug") {
		t.Fatalf("the log level is debug already: %s", out)
	}
	m.must("sh", "-c", "echo debug >/etc/delegated-ipam/log-level")
	m.must("systemctl", "reload", "delegated-ipam")
	harness.Eventually(t, "the option to be reloaded", func() error {
		if out := m.must("delegated-ipam", "status"); !strings.Contains(out, "debug") {
			return errors.New(out)
		}
		return nil
	})
	if now := m.property("MainPID"); now != running {
		t.Errorf("the reload has replaced process %s by %s", running, now)
	}

	m.must("systemctl", "stop", "delegated-ipam")
	if state, result := m.property("ActiveState"), m.property("Result"); state != "inactive" || result != "success" {
		t.Errorf("after the stop the service is %s, its result %s; want inactive and success", state, result)
	}
	m.must("test", "-d", "/run/delegated-ipam") // pods mount it
	m.must("systemctl", "start", "delegated-ipam")
	if again := m.allocate("router"); again != ip {
		t.Errorf("after a stop the router has %s; want %s", again, ip)
	}
	m.must("delegated-ipam", "release", ip.String())
	if left := m.must("find", "/var/lib/cni/networks/pods", "-name", "10.15.*"); left != "" {
		t.Errorf("after the release there is %s", left)
	}
}

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
