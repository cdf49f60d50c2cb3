package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/audit"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// serveCluster returns an API server with nodes worker-1 and worker-2 that are in order, and the
// CiliumNode of worker-3, which has the pool of worker-2 if it conflicts.
func serveCluster(t *testing.T, conflict bool) *apiserver.Server {
	t.Helper()
	s := apiserver.Start(t)
	pool := func(key, resource string) apiserver.Object {
		return apiserver.Object{"ipam": apiserver.Object{"pool": apiserver.Object{key: apiserver.Object{"resource": resource}}}}
	}
	s.Create("worker-1", pool("10.0.1.1", "delegated-ipam/ciliumnode-0"))
	s.Create("worker-2", pool("10.0.2.1", "delegated-ipam/ciliumnode-0"))
	n, _ := s.Node(t, "worker-1")
	s.UpdateStatus("worker-1", n.Version, map[string]apiserver.Entry{"10.0.1.1": {Owner: "default/web"}}, nil)
	for name, cidr := range map[string]string{"worker-1": "10.0.1.0/24", "worker-2": "10.0.2.0/24"} {
		s.Add("nodes", apiserver.Object{"metadata": apiserver.Object{"name": name}, "spec": apiserver.Object{"podCIDRs": []string{cidr}}})
		s.Add("pods", apiserver.Object{
			"metadata": apiserver.Object{"name": "bridge-" + name, "namespace": "kube-system", "labels": apiserver.Object{"app.kubernetes.io/name": "delegated-ipam-bridge"}},
			"spec":     apiserver.Object{"nodeName": name},
			"status":   apiserver.Object{"conditions": []any{apiserver.Object{"type": "Ready", "status": "True"}}},
		})
	}
	if conflict {
		s.Create("worker-3", pool("10.0.2.1", "eni-1"))
	}
	return s
}

// outcome is the result of a command line.
type outcome struct {
	code           int
	stdout, stderr string
}

// runLine runs a command line with an environment.
func runLine(t *testing.T, environ []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	code := Run(t.Context(), args, environ, &stdout, &stderr, "v1")
	return outcome{code, stdout.String(), stderr.String()}
}

// runOn runs a command line with the API server.
func runOn(t *testing.T, s *apiserver.Server, args ...string) outcome {
	t.Helper()
	return runLine(t, nil, append(args, "--kubeconfig="+s.Kubeconfig(t))...)
}

// wants checks the exit code, words of stderr, which is empty without any, and words of stdout.
func (o outcome) wants(t *testing.T, code int, stderr []string, stdout ...string) {
	t.Helper()
	if o.code != code || len(stderr) == 0 && o.stderr != "" || len(stdout) == 0 && o.stdout != "" {
		t.Errorf("exit code %d, printed\n%s\nand\n%s\nwant %d", o.code, o.stdout, o.stderr, code)
	}
	for _, want := range stderr {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("printed the error\n%s\nwant %q in it", o.stderr, want)
		}
	}
	for _, want := range stdout {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("printed\n%s\nwant %q in it", o.stdout, want)
		}
	}
}

func TestAudit(t *testing.T) {
	const none = "0 findings; read 2 CiliumNodes (2 addresses in pools, 1 used), 2 Nodes and 2 bridge pods\n"
	if o := runOn(t, serveCluster(t, false), "audit"); o != (outcome{cmdline.ExitOK, none, ""}) {
		t.Errorf("without findings: got %+v; want %q", o, none)
	}
	s := serveCluster(t, true)
	runOn(t, s, "audit").wants(t, exitFindings, []string{"2 findings"},
		"CHECK", "address-in-two-pools   -          10.0.2.1   in 2 pools: worker-2 (ciliumnode-0, not used), worker-3 (the Node does not exist,",
		"remedy: give each node separate ranges", "node-deleted           worker-3   -", "2 findings; read 3 CiliumNodes")
	o := runOn(t, s, "audit", "-o", "json")
	var got audit.Report
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.code != exitFindings {
		t.Fatalf("%v: %+v", err, o)
	}
	if len(got.Findings) != 2 || got.Findings[0].Check != audit.TwoPools || len(got.Findings[0].Holders) != 2 || got.CiliumNodes != 3 {
		t.Errorf("got %+v", got)
	}
	wantKeys(t, o.stdout, "ciliumNodes", "nodes", "bridgePods", "poolAddresses", "usedAddresses", "findings", "check", "address", "message",
		"remedy", "holders", "node", "nodeDeleted", "inPool", "slot", "resource", "used")
}

// wantKeys compares the keys of all objects in JSON text.
func wantKeys(t *testing.T, text string, want ...string) {
	t.Helper()
	if !json.Valid([]byte(text)) {
		t.Fatalf("not JSON: %s", text)
	}
	var keys []string
	for _, m := range regexp.MustCompile(`"([^"\\]+)":`).FindAllStringSubmatch(text, -1) {
		keys = append(keys, m[1])
	}
	slices.Sort(keys)
	slices.Sort(want)
	if keys = slices.Compact(keys); !slices.Equal(keys, want) {
		t.Errorf("the keys are %v; want %v", keys, want)
	}
}

func TestHolder(t *testing.T) {
	s := serveCluster(t, true)
	for name, tt := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"held":            {[]string{"10.0.1.1"}, cmdline.ExitOK, []string{"10.0.1.1   held    worker-1   ciliumnode-0   default/web   -"}},
		"another writing": {[]string{"::ffff:10.0.1.1"}, cmdline.ExitOK, []string{"10.0.1.1   held "}},
		"conflict": {
			[]string{"10.0.1.1", "10.0.2.1", "10.0.1.9"},
			exitFindings,
			[]string{"10.0.1.1   held ", "10.0.2.1   conflict   worker-2", "10.0.2.1   conflict   worker-3   -              -             the Node does not exist, not an entry of the bridge, resource eni-1", "10.0.1.9   not-held"},
		},
		"not held":            {[]string{"10.0.1.1", "10.0.1.9"}, exitFree, []string{"in no pool; in the pod CIDR 10.0.1.0/24 of worker-1"}},
		"not of this cluster": {[]string{"192.0.2.1"}, exitFree, []string{"in no pool, and in no pod CIDR of a Node"}},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr []string
			if tt.code != cmdline.ExitOK {
				stderr = []string{"holder: "}
			}
			runOn(t, s, append([]string{"holder"}, tt.args...)...).wants(t, tt.code, stderr, tt.want...)
		})
	}
	o := runOn(t, s, "holder", "10.0.1.1", "-o", "json")
	o.wants(t, cmdline.ExitOK, nil, "10.0.1.1")
	wantKeys(t, o.stdout, "address", "state", "holders", "podCIDRs", "node", "inPool", "slot", "used", "usedBy", "cidr")
}

// A command without a result has another exit code than one with or without findings.
func TestClusterFailures(t *testing.T) {
	down := serveCluster(t, true)
	down.Down()
	forbidden := serveCluster(t, false)
	forbidden.Allow(func(p apiserver.Permission) bool { return p.Resource != "nodes" })
	noPods := serveCluster(t, false)
	noPods.Allow(func(p apiserver.Permission) bool { return p.Resource != "pods" })
	report := filepath.Join(t.TempDir(), "report.json")
	check.Must(t, os.WriteFile(report, []byte("{"), 0o600))
	for name, tt := range map[string]struct {
		s    *apiserver.Server
		args []string
		code int
		want string
	}{
		"audit, no API server":  {down, []string{"audit"}, cmdline.ExitFailed, "list CiliumNodes"},
		"audit, no rights":      {forbidden, []string{"audit"}, cmdline.ExitFailed, "list Nodes"},
		"audit, no right, pods": {noPods, []string{"audit"}, cmdline.ExitFailed, "list pods"},
		"holder, no API server": {down, []string{"holder", "10.0.0.1"}, cmdline.ExitFailed, "list CiliumNodes"},
		"holder, no rights":     {forbidden, []string{"holder", "10.0.0.1"}, cmdline.ExitFailed, "list Nodes"},
		// A report that cannot be read forgets no node, and no request is sent.
		"lost-nodes, no report": {down, []string{"lost-nodes", "--cni-networks=pods", "--forget=" + report}, cmdline.ExitFailed, report},
		"uninstall, no step":    {down, []string{"uninstall"}, cmdline.ExitUsage, "STEP is missing"},
		"uninstall, bad step":   {down, []string{"uninstall", "all"}, cmdline.ExitUsage, "expected prepare or finish"},
		"audit, argument":       {down, []string{"audit", "x"}, cmdline.ExitUsage, "expected no argument"},
		"audit, bad output":     {down, []string{"audit", "-o", "xml"}, cmdline.ExitUsage, "--output"},
		"holder, no address":    {down, []string{"holder"}, cmdline.ExitUsage, "IP is missing"},
		"holder, no IP":         {down, []string{"holder", "10.0.0.0/8"}, cmdline.ExitUsage, `"10.0.0.0/8"`},
	} {
		t.Run(name, func(t *testing.T) {
			runOn(t, tt.s, tt.args...).wants(t, tt.code, []string{tt.want})
		})
	}
}
