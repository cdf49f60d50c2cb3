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
	"strconv"
	"strings"
	"syscall"
	"testing"

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
	group := fmt.Sprintf("delegated-ipam-machine-%d", os.Getpid())
	cmd := exec.Command("bash", "machine.sh", t.TempDir(), harness.Binary(t), filepath.Join(harness.NewNode(t).BinDir, "host-local"), systemdUnit)
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

// The unit, with the path of the binary under test, has known settings alone, and its exposure level is at most 2.9,
// "OK": the threshold is ten times it.
func TestUnitAnalyzed(t *testing.T) {
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		harness.Skipf(t, "no systemd-analyze: %v", err)
	}
	file := filepath.Join(t.TempDir(), "delegated-ipam.service")
	text := strings.ReplaceAll(read(t, systemdUnit), "/usr/bin/delegated-ipam", harness.Binary(t))
	check.Must(t, os.WriteFile(file, []byte(text), 0o644))
	// Unknown settings are only warnings.
	if out, err := exec.Command(program, "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, err := exec.Command(program, "security", "--offline=true", "--threshold=29", file).CombinedOutput(); err != nil {
		t.Errorf("security: %v\n%s", err, out)
	}
}

func TestUnitStopTime(t *testing.T) {
	found := regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)$`).FindStringSubmatch(read(t, systemdUnit))
	got, err := strconv.ParseInt(found[1], 10, 64)
	check.Must(t, err)
	if want := stopTimeout(t); seconds(got) < want {
		t.Errorf("TimeoutStopSec is %d, less than the time limit %s for plugin calls", got, want)
	}
}

// No test stops the unit during a write of a plugin, or runs a plugin that uses netlink.
func TestUnitSettings(t *testing.T) {
	for _, line := range []string{"KillMode=mixed", "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK"} {
		check.Contains(t, read(t, systemdUnit), "\n"+line+"\n")
	}
}
