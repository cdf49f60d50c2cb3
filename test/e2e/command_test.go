package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// command is a line to run and how it must end.
type command struct {
	args []string
	code int
	// stdout and stderr must be found there.
	stdout, stderr string
}

func TestClientCommands(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	n.Start(t, "--owners=router,health")

	// In order: each line works on what the ones before it left.
	steps := []command{
		{args: []string{"status"}, code: 0, stdout: n.Name},
		{args: []string{"allocate", "router"}, code: 0, stdout: "10.15.0.2"},
		{args: []string{"allocate", "router", "-o", "json"}, code: 0, stdout: `"10.15.0.2"`},
		{args: []string{"restore", "10.15.0.2", "router"}, code: 0},
		{args: []string{"list"}, code: 0, stdout: "router"},
		{args: []string{"allocate", "ingress"}, code: 1, stderr: "ingress"},
		{args: []string{"restore", "10.15.0.2", "health"}, code: 1, stderr: "10.15.0.2"},
		{args: []string{"release", "10.15.0.99"}, code: 1, stderr: "10.15.0.99"},
		{args: []string{"allocate", "router", "--pool", "red"}, code: 1, stderr: "red"},
		{args: []string{"release", "10.15.0.2"}, code: 0},
		{args: []string{"allocate", "health"}, code: 0},
		{args: []string{"release", "--all"}, code: 2, stderr: "--yes"},
		{args: []string{"release", "--all", "--yes"}, code: 0},
		{args: []string{"list", "-o", "json"}, code: 0, stdout: "[]"},
		{args: []string{"version"}, code: 0},
	}
	for _, step := range steps {
		wantCommand(t, n, step)
	}
	wantLeases(t, n, 0)
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	tests := map[string]command{
		"an unknown command":            {args: []string{"alocate"}, stderr: "alocate"},
		"an unknown flag":               {args: []string{"list", "--colour"}, stderr: "--colour"},
		"a missing owner":               {args: []string{"allocate"}, stderr: "OWNER"},
		"an argument too many":          {args: []string{"allocate", "a", "b"}, stderr: "OWNER"},
		"an unknown output format":      {args: []string{"list", "-o", "xml"}, stderr: "xml"},
		"a host that is no unix socket": {args: []string{"list", "-H", "gopher://x"}, stderr: "gopher://x"},
		"release of nothing":            {args: []string{"release"}, stderr: "--all"},
		"release of an address and all": {args: []string{"release", "10.15.0.2", "--all"}, stderr: "--all"},
		"a malformed address":           {args: []string{"restore", "banana", "router"}, stderr: "banana"},
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
	wantCommand(t, n, command{args: []string{"list"}, code: 1, stderr: n.Socket})
}

func TestListJSON(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.Allocate(t, harness.Request{Owner: "router"})

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
	s.Allocate(t, harness.Request{Owner: "kube-system/pod"})
	used := s.Attachment(t, "kube-system/pod").ContainerID

	wantCommand(t, n, command{args: []string{"id", "kube-system/pod", "--node-name", n.Name, "--cni-network", "pods"}, stdout: used})
	for _, l := range n.Leases(t) {
		if l.ContainerID != used {
			t.Errorf("the plugin's store names %s; want %s", l.ContainerID, used)
		}
	}
}

func TestInvalidServeFlag(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		flags []string
		// says are the flag, what it got and what it takes.
		says []string
	}{
		"a release delay that is no duration":  {[]string{"--release-delay=banana"}, []string{"release-delay", "banana"}},
		"a negative release delay":             {[]string{"--release-delay=-1s"}, []string{"release-delay", "-1s"}},
		"an expiration that is not positive":   {[]string{"--ipam-expiration=0s"}, []string{"ipam-expiration", "0s"}},
		"a negative verify interval":           {[]string{"--verify-interval=-1s"}, []string{"verify-interval", "-1s"}},
		"a plugin time limit that is zero":     {[]string{"--plugin-timeout=0s"}, []string{"plugin-timeout", "0s"}},
		"no plugin process at all":             {[]string{"--max-plugin-processes=0"}, []string{"max-plugin-processes", "0"}},
		"a mode that is not octal":             {[]string{"--socket-mode=rw"}, []string{"socket-mode", "rw"}},
		"a group that does not exist":          {[]string{"--socket-group=no-such-group"}, []string{"socket-group", "no-such-group"}},
		"a router address that is none":        {[]string{"--local-router-ipv4=banana"}, []string{"local-router-ipv4", "banana"}},
		"a router address of the other family": {[]string{"--local-router-ipv4=fd00::1"}, []string{"local-router-ipv4", "fd00::1"}},
		"a range that is none":                 {[]string{"--ipv4-range=10.0.0.0/33"}, []string{"ipv4-range", "10.0.0.0/33"}},
		"both families off":                    {[]string{"--enable-ipv4=false", "--enable-ipv6=false"}, []string{"enable-ipv4", "enable-ipv6"}},
		"a pool without a network":             {[]string{"--pool=blue"}, []string{"pool", "blue", "name=network"}},
		"two pools on one network":             {[]string{"--pool=a=pods", "--pool=b=pods"}, []string{"pool", "pods"}},
		"an unknown log level":                 {[]string{"--log-level=loud"}, []string{"log-level", "loud"}},
		"an unknown log format":                {[]string{"--log-format=xml"}, []string{"log-format", "xml"}},
		"an interface name that is too long":   {[]string{"--cni-ifname=an-interface-name-too-long"}, []string{"cni-ifname", "an-interface-name-too-long"}},
		"our own network namespace":            {[]string{"--cni-netns=/proc/self/ns/net"}, []string{"cni-netns", "/proc/self/ns/net"}},
		"a socket path that is too long":       {[]string{"--socket-path=/tmp/" + strings.Repeat("x", 120)}, []string{"socket-path", "107"}},
		"a flag that does not exist":           {[]string{"--colour=red"}, []string{"colour"}},
		"a boolean that is none":               {[]string{"--enable-ipv6=perhaps"}, []string{"enable-ipv6", "perhaps"}},
		"an argument that serve does not take": {[]string{"now"}, []string{"now"}},
		"an allowed user that is no number":    {[]string{"--allow-uids=root!"}, []string{"allow-uids", "root!"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeWith(t, harness.DualStack())
			out := n.Command(t, n.ServeArgs(tt.flags...)...)
			if out.ExitCode != 2 {
				t.Errorf("ended with status %d; want 2 (wrong usage)", out.ExitCode)
			}
			for _, says := range tt.says {
				if !strings.Contains(out.Stderr, says) {
					t.Errorf("stderr is %q; want it to say %q", out.Stderr, says)
				}
			}
			for _, path := range []string{n.StateDir, n.StoreDir, n.Socket} {
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("%s is there after a refusal (%v)", path, err)
				}
			}
		})
	}
}

func TestCommandHelp(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	for _, name := range []string{"serve", "allocate", "restore", "release", "list", "gc", "status", "id", "version"} {
		wantCommand(t, n, command{args: []string{name, "--help"}, stdout: "delegated-ipam " + name})
		wantCommand(t, n, command{args: []string{"--help"}, stdout: name})
	}
}

// wantCommand runs a command and compares how it ended.
func wantCommand(t *testing.T, n *harness.Node, c command) {
	t.Helper()
	out := n.Command(t, c.args...)
	if out.ExitCode != c.code {
		t.Errorf("%q ended with status %d; want %d; stdout %q, stderr %q", c.args, out.ExitCode, c.code, out.Stdout, out.Stderr)
	}
	if !strings.Contains(out.Stdout, c.stdout) {
		t.Errorf("%q printed %q; want it to contain %q", c.args, out.Stdout, c.stdout)
	}
	if !strings.Contains(out.Stderr, c.stderr) {
		t.Errorf("%q printed to stderr %q; want it to contain %q", c.args, out.Stderr, c.stderr)
	}
}
