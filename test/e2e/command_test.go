package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// command is a command line and its expected result.
type command struct {
	// line is split at spaces.
	line string
	code int
	// stdout and stderr are parts of the output.
	stdout, stderr string
}

func TestClientCommands(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t, "--owners=router,health")

	// The commands depend on the ones before them.
	steps := []command{
		{line: "status", stdout: n.Name},
		{line: "allocate router", stdout: "10.15.0.2"},
		{line: "allocate router -o json", stdout: `"10.15.0.2"`},
		{line: "restore 10.15.0.2 router"},
		{line: "list", stdout: "router"},
		{line: "allocate ingress", code: 1, stderr: "ingress"},
		{line: "restore 10.15.0.2 health", code: 1, stderr: "10.15.0.2"},
		{line: "release 10.15.0.99", code: 1, stderr: "10.15.0.99"},
		{line: "allocate router --pool red", code: 1, stderr: "red"},
		{line: "release 10.15.0.2"},
		{line: "allocate health"},
		{line: "release --all", code: 2, stderr: "--yes"},
		{line: "release --all --yes"},
		{line: "list -o json", stdout: "[]"},
		{line: "version"},
	}
	for _, step := range steps {
		wantCommand(t, n, step)
	}
	wantLeaseCount(t, n, 0)
}

// The ID in use has a suffix where a late DEL may act on the one without. Command, list and plugin agree.
func TestIDInUse(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "azure-ipam", nil)
	s := n.Start(t, "--enable-ipv6=false")
	s.AllocateFor(t, "router")
	var used string
	for _, call := range plugin.Calls(t) {
		if call.Verb == "ADD" {
			used = call.Env["CNI_CONTAINERID"]
		}
	}
	if !strings.Contains(used, "-u") {
		t.Fatalf("the plugin got the container ID %q; want one that is used once", used)
	}
	wantCommand(t, n, command{line: "id router", stdout: used + "\n"})
	wantCommand(t, n, command{line: "list -o wide", stdout: used})
	wantCommand(t, n, command{line: "id router --node-name " + n.Name + " --cni-network pods", stdout: containerid.For("router", n.Name, "pods") + "\n", stderr: "may have a suffix"})
	wantCommand(t, n, command{line: "id health", stdout: containerid.For("health", n.Name, "pods") + "\n", stderr: `no attachment in pool "default"`})
	s.Stop(t)
	wantCommand(t, n, command{line: "id router", code: 1, stderr: "id router: "})
}

// An invalid option ends the process before it creates anything. The tests of the packages have all options.
func TestInvalidServeFlag(t *testing.T) {
	t.Parallel()
	for flag, text := range map[string]string{
		"--release-delay=banana":                         "banana",
		"--socket-group=no-such-group":                   "no-such-group",
		"--cni-netns=/proc/self/ns/net":                  "/proc/self/ns/net",
		"--socket-path=/tmp/" + strings.Repeat("x", 120): "107",
	} {
		name, _, _ := strings.Cut(flag, "=")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			out := n.Command(t, n.ServeArgs(flag)...)
			if out.ExitCode != 2 || !strings.Contains(out.Stderr, name) || !strings.Contains(out.Stderr, text) {
				t.Errorf("ended with status %d and %q; want 2 (wrong usage), %q and %q", out.ExitCode, out.Stderr, name, text)
			}
			for _, path := range []string{n.StateDir, n.StoreDir, n.Socket} {
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("%s was created (%v)", path, err)
				}
			}
		})
	}
}

// wantCommand runs a command and compares its result.
func wantCommand(t *testing.T, n *harness.Node, c command) {
	t.Helper()
	out := n.Command(t, strings.Fields(c.line)...)
	if out.ExitCode != c.code {
		t.Errorf("%q ended with status %d; want %d; stdout %q, stderr %q", c.line, out.ExitCode, c.code, out.Stdout, out.Stderr)
	}
	if !strings.Contains(out.Stdout, c.stdout) {
		t.Errorf("%q printed %q; want it to contain %q", c.line, out.Stdout, c.stdout)
	}
	if !strings.Contains(out.Stderr, c.stderr) {
		t.Errorf("%q printed to stderr %q; want it to contain %q", c.line, out.Stderr, c.stderr)
	}
}
