package e2e

import (
	"encoding/json"
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

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	tests := map[string]command{
		"unknown command":                {line: "alocate", stderr: "alocate"},
		"unknown flag":                   {line: "list --colour", stderr: "--colour"},
		"missing owner":                  {line: "allocate", stderr: "OWNER"},
		"too many arguments":             {line: "allocate a b", stderr: "OWNER"},
		"unknown output format":          {line: "list -o xml", stderr: "xml"},
		"host is not a unix socket":      {line: "list -H gopher://x", stderr: "gopher://x"},
		"release without address":        {line: "release", stderr: "--all"},
		"release with address and --all": {line: "release 10.15.0.2 --all", stderr: "--all"},
		"malformed address":              {line: "restore banana router", stderr: "banana"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.code = 2
			wantCommand(t, n, tt)
		})
	}
}

func TestCommandWithoutSidecar(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	wantCommand(t, n, command{line: "list", code: 1, stderr: n.Socket})
}

func TestListJSON(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.AllocateFor(t, "router")

	out := n.Command(t, "list", "-o", "json")
	var got, want any
	if err := json.Unmarshal([]byte(out.Stdout), &got); err != nil {
		t.Fatalf("%s: %v", out.Stdout, err)
	}
	a := s.Do(t, "GET", "/v1/ipam")
	harness.Must(t, json.Unmarshal(a.Body, &want))
	if asJSON(t, got) != asJSON(t, want) {
		t.Errorf("the command prints %s; the API answers %s", asJSON(t, got), asJSON(t, want))
	}
}

func TestIDCommand(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.AllocateFor(t, "kube-system/pod")
	used := s.Attachment(t, "kube-system/pod").ContainerID

	wantCommand(t, n, command{line: "id kube-system/pod --node-name " + n.Name + " --cni-network pods", stdout: used})
	for _, l := range n.Leases(t) {
		if l.ContainerID != used {
			t.Errorf("the plugin's store names %s; want %s", l.ContainerID, used)
		}
	}
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
	wantCommand(t, n, command{line: "list", stdout: used})
	wantCommand(t, n, command{line: "id router --node-name " + n.Name + " --cni-network pods", stdout: containerid.For("router", n.Name, "pods") + "\n", stderr: "may have a suffix"})
	wantCommand(t, n, command{line: "id health", stdout: containerid.For("health", n.Name, "pods") + "\n", stderr: `no attachment in pool "default"`})
	s.Stop(t)
	wantCommand(t, n, command{line: "id router", code: 1, stderr: "id router: "})
}

func TestInvalidServeFlag(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		flags []string
		// texts must be in the error.
		texts []string
	}{
		"release-delay not a duration": {[]string{"--release-delay=banana"}, []string{"release-delay", "banana"}},
		"release-delay negative":       {[]string{"--release-delay=-1s"}, []string{"release-delay", "-1s"}},
		"ipam-expiration zero":         {[]string{"--ipam-expiration=0s"}, []string{"ipam-expiration", "0s"}},
		"verify-interval negative":     {[]string{"--verify-interval=-1s"}, []string{"verify-interval", "-1s"}},
		"plugin-timeout zero":          {[]string{"--plugin-timeout=0s"}, []string{"plugin-timeout", "0s"}},
		"max-plugin-processes zero":    {[]string{"--max-plugin-processes=0"}, []string{"max-plugin-processes", "0"}},
		"socket-mode not octal":        {[]string{"--socket-mode=rw"}, []string{"socket-mode", "rw"}},
		"socket-group unknown":         {[]string{"--socket-group=no-such-group"}, []string{"socket-group", "no-such-group"}},
		"local-router-ipv4 malformed":  {[]string{"--local-router-ipv4=banana"}, []string{"local-router-ipv4", "banana"}},
		"local-router-ipv4 is IPv6":    {[]string{"--local-router-ipv4=fd00::1"}, []string{"local-router-ipv4", "fd00::1"}},
		"ipv4-range malformed":         {[]string{"--ipv4-range=10.0.0.0/33"}, []string{"ipv4-range", "10.0.0.0/33"}},
		"both families disabled":       {[]string{"--enable-ipv4=false", "--enable-ipv6=false"}, []string{"enable-ipv4", "enable-ipv6"}},
		"pool without network":         {[]string{"--pool=blue"}, []string{"pool", "blue", "name=network"}},
		"two pools on one network":     {[]string{"--pool=a=pods", "--pool=b=pods"}, []string{"pool", "pods"}},
		"unknown log level":            {[]string{"--log-level=loud"}, []string{"log-level", "loud"}},
		"unknown log format":           {[]string{"--log-format=xml"}, []string{"log-format", "xml"}},
		"cni-ifname too long":          {[]string{"--cni-ifname=an-interface-name-too-long"}, []string{"cni-ifname", "an-interface-name-too-long"}},
		"own network namespace":        {[]string{"--cni-netns=/proc/self/ns/net"}, []string{"cni-netns", "/proc/self/ns/net"}},
		"socket-path too long":         {[]string{"--socket-path=/tmp/" + strings.Repeat("x", 120)}, []string{"socket-path", "107"}},
		"unknown serve flag":           {[]string{"--colour=red"}, []string{"colour"}},
		"enable-ipv6 not a boolean":    {[]string{"--enable-ipv6=perhaps"}, []string{"enable-ipv6", "perhaps"}},
		"unexpected argument":          {[]string{"now"}, []string{"now"}},
		"allow-uids not a number":      {[]string{"--allow-uids=root!"}, []string{"allow-uids", "root!"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			out := n.Command(t, n.ServeArgs(tt.flags...)...)
			if out.ExitCode != 2 {
				t.Errorf("ended with status %d; want 2 (wrong usage)", out.ExitCode)
			}
			for _, text := range tt.texts {
				if !strings.Contains(out.Stderr, text) {
					t.Errorf("stderr is %q; want it to contain %q", out.Stderr, text)
				}
			}
			for _, path := range []string{n.StateDir, n.StoreDir, n.Socket} {
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("%s was created (%v)", path, err)
				}
			}
		})
	}
}

func TestCommandHelp(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	for _, name := range []string{"serve", "allocate", "restore", "release", "list", "gc", "status", "id", "version"} {
		wantCommand(t, n, command{line: name + " --help", stdout: "delegated-ipam " + name})
		wantCommand(t, n, command{line: "--help", stdout: name})
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
