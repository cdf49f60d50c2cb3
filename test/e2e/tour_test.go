package e2e

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

var update = flag.Bool("update", false, "record the sessions of the tour")

// tourDir has the sessions of docs/operate/tour.md as text, and the pictures that tools/tour draws.
const tourDir = "../../docs/operate/tour"

// tourNetwork is the CNI configuration of the node.
const tourNetwork = `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [{
    "type": "cilium-cni",
    "ipam": {
      "type": "host-local",
      "dataDir": "/var/lib/cni/networks",
      "ranges": [[{"subnet": "10.15.0.0/24"}], [{"subnet": "fd00:15::/112"}]]
    }
  }]
}
`

// TestTour plays the sessions of the tour. Each picture must be drawn from what is printed now.
func TestTour(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	n.Flags = []string{hostLocalProgram}
	n.WriteConf(t, "05-cilium.conflist", []byte(strings.ReplaceAll(tourNetwork, "/var/lib/cni/networks", n.StoreDir)))
	check.Must(t, os.Mkdir(filepath.Join(n.Dir, "path"), 0o755))
	check.Must(t, os.Symlink(harness.Binary(t), filepath.Join(n.Dir, "path", "delegated-ipam")))

	c := &console{node: n}
	c.run(t, "ls /opt/cni/bin", "cat /etc/cni/net.d/05-cilium.conflist")
	s := c.serve(t)
	c.run(t, "delegated-ipam probe ready && echo ready")
	c.compare(t, "serve")

	c.run(t, "delegated-ipam allocate router", "delegated-ipam allocate health --family=ipv4",
		"delegated-ipam restore 10.15.0.77 ingress", "delegated-ipam list", "delegated-ipam release 10.15.0.77", "delegated-ipam list")
	c.compare(t, "addresses")

	c.print("delegated-ipam doctor | less -S", c.output(t, "delegated-ipam doctor"))
	c.compare(t, "doctor")

	c.run(t, "rm /var/lib/cni/networks/pods/10.15.0.2   # the plugin loses an address of router",
		"delegated-ipam doctor 2>&1 | grep -v '^ok'", "delegated-ipam allocate router", "delegated-ipam doctor 2>&1 | grep -v '^ok'")
	c.compare(t, "lost-lease")

	c.run(t, "mv /opt/cni/bin/host-local /tmp")
	s.WaitNotReady(t, "conflist: network", "no longer exists")
	c.run(t, "delegated-ipam probe ready", "delegated-ipam allocate ingress", "mv /tmp/host-local /opt/cni/bin")
	s.WaitReady(t)
	c.run(t, "delegated-ipam allocate ingress")
	c.compare(t, "no-plugin")

	s.Kill(t)
	c.print("kill -9 $(pidof delegated-ipam)", "")
	c.run(t, ">/var/lib/cni/networks/pods/10.15.0.9   # host-local, killed before it wrote the container ID")
	c.serve(t)
	c.run(t, "delegated-ipam list", "delegated-ipam doctor 2>&1 | grep -v '^ok'", "delegated-ipam doctor --repair | grep stale")
	c.compare(t, "crash")
}

// console is a terminal on a node.
type console struct {
	node  *harness.Node
	shown strings.Builder
}

// run runs lines of shell and shows them with what they print.
func (c *console) run(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		c.print(line, c.output(t, line))
	}
}

// output runs a line of shell, with the paths of a real node, and returns what it prints.
func (c *console) output(t *testing.T, line string) string {
	t.Helper()
	n := c.node
	n.ResetHistory() // the line may change what clients hold
	local := strings.NewReplacer("/etc/cni/net.d", n.ConfDir, "/opt/cni/bin", n.BinDir, "/var/lib/cni/networks", n.StoreDir, "/tmp", n.Dir,
		"probe ready", "probe ready --timeout=1m")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", local.Replace(line))
	cmd.Dir = n.Dir
	cmd.Env = append(n.Environment(), "CILIUM_SOCK="+n.Socket, "PATH="+filepath.Join(n.Dir, "path")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%s: %v", line, err)
	}
	return string(out)
}

// serve starts the daemon and shows its log.
func (c *console) serve(t *testing.T) *harness.Daemon {
	t.Helper()
	s := c.node.Start(t, "--verify-interval=0", "--log-level=info")
	harness.Eventually(t, "the daemon to log that it is ready", func() error {
		if !strings.Contains(s.Log(), "msg=Ready") {
			return errors.New("its log lacks msg=Ready")
		}
		return nil
	})
	c.print("delegated-ipam serve --local-router-ipv4=10.15.0.1 --local-router-ipv6=fd00:15::1 --verify-interval=0 &", s.Log())
	return s
}

func (c *console) print(line, output string) {
	fmt.Fprintf(&c.shown, "$ %s\n%s", line, output)
}

// compare compares the session since the last call with the recorded one, and that one with its
// picture. With -update it records the session.
func (c *console) compare(t *testing.T, name string) {
	t.Helper()
	var ids []harness.Attachment
	for _, owner := range []string{"router", "health", "ingress"} {
		ids = append(ids, harness.Attachment{Owner: owner, Network: "pods", ContainerID: containerid.For(owner, c.node.Name, "pods")})
	}
	got := replaceVarying(c.node, ids, c.shown.String())
	c.shown.Reset()
	file := filepath.Join(tourDir, name+".txt")
	if *update {
		check.Must(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	check.Must(t, err)
	if withoutWarnings(got) != withoutWarnings(string(want)) {
		t.Errorf("a real run prints\n%s\nbut %s has\n%s\n(update: make tour)", got, file, want)
	}
	picture, err := os.ReadFile(filepath.Join(tourDir, name+".svg"))
	check.Must(t, err)
	if source := fmt.Sprintf("%s.txt %x", name, sha256.Sum256(want)); !strings.Contains(string(picture), source) {
		t.Errorf("%s.svg was not drawn from %s: it lacks %q (draw: make tour)", name, file, source)
	}
}

// replaceVarying replaces the paths and the name of the test's node by usual ones, and
// values that differ between runs.
func replaceVarying(n *harness.Node, list []harness.Attachment, text string) string {
	const node = "worker-1"
	replace := []string{
		n.Socket, "/var/run/delegated-ipam/ipam.sock", n.StateDir, "/var/lib/delegated-ipam", n.ConfDir, "/etc/cni/net.d",
		n.BinDir, "/opt/cni/bin", n.StoreDir, "/var/lib/cni/networks",
	}
	for _, a := range list {
		replace = append(replace, a.ContainerID, containerid.For(a.Owner, node, a.Network))
	}
	text = strings.NewReplacer(append(replace, n.Name, node)...).Replace(text)
	for _, r := range [][2]string{
		{`(Version: +|version=|daemon )\S+( not ready|\n)`, "${1}v0.1.0${2}"},
		{`\b(?:\d+m(?:\d+s)?|\d+s)\b`, "5s"},
		{`PID \d+`, "PID 4711"},
		{`on host \S+`, "on host worker-1"},
		{`as its user \d+`, "as its user 0"},
		{`group \d+`, "group 0"},
		{`\d+ MiB and \d+ inodes`, "45612 MiB and 3014912 inodes"},
		{`writable \(\w+\)`, "writable (ext4)"},
		{`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z`, "2026-03-01T12:00:00Z"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// machineChecks matches the checks of doctor that depend on the machine: a test may run on a tmpfs
// or as another user.
var machineChecks = regexp.MustCompile(`(?m)^\w+ +(environment|socket|state-dir|disk-space) .*\n(?: +remedy: .*\n)?`)

// withoutWarnings removes the checks that depend on the machine, the line and the widths that
// follow from them.
func withoutWarnings(text string) string {
	text = regexp.MustCompile(`(?m)^Error: doctor: .*\n`).ReplaceAllString(machineChecks.ReplaceAllString(text, ""), "")
	return regexp.MustCompile(` +`).ReplaceAllString(text, " ")
}
