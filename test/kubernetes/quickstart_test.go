package kubernetes

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// ciliumChart is in the one command of the quick start that installs Cilium.
const ciliumChart = " cilium/cilium "

var (
	// quickstartStep is a block of commands and, if the page shows it, its output.
	quickstartStep = regexp.MustCompile("(?s)\n```sh\n(.*?)```\n(?:\n```text\n(.*?)```\n)?")
	// What differs between clusters and runs: hashes, ages and other numbers, the width of columns.
	quickstartHash   = regexp.MustCompile(`-[0-9a-f]{16}\b`)
	quickstartAge    = regexp.MustCompile(`\b([0-9]+[hms])+\b`)
	quickstartNumber = regexp.MustCompile(`[0-9]+`)
)

// TestClusterQuickstart runs the commands of docs/quickstart.md in their order, and compares their
// output with that of the page.
func TestClusterQuickstart(t *testing.T) {
	tb := newTestbed(t, bridgeMode())
	tb.route(t)
	for _, n := range tb.nodes {
		// The pods' image of the page is in a registry; the agent is a service of the node.
		for _, args := range [][]string{
			{"ctr", "--namespace=k8s.io", "images", "tag", "localhost/cluster-test/busybox:1", "registry.k8s.io/pause:3.10"},
			{"ln", "-s", filepath.Join(tb.agentDir, "bin", "cilium-dbg"), "/run/bin/"},
		} {
			_, err := n.command(t.Context(), args...)
			check.Must(t, err)
		}
	}
	page, err := os.ReadFile(filepath.Join(tb.root, "docs", "quickstart.md"))
	check.Must(t, err)
	steps := quickstartStep.FindAllStringSubmatch(string(page), -1)
	if len(steps) == 0 {
		t.Fatal("docs/quickstart.md has no commands")
	}
	checkout := filepath.Join(tb.dir, "checkout")
	check.Must(t, os.Mkdir(checkout, 0o755))
	check.Must(t, os.Symlink(filepath.Join(tb.root, "deploy"), filepath.Join(checkout, "deploy")))
	charts := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(tb.built, "charts"))))
	defer charts.Close()
	tb.shell(t, checkout, "helm repo add cilium "+charts.URL)
	for _, step := range steps {
		out := tb.shell(t, checkout, step[1])
		t.Logf("%s%s", step[1], out)
		if difference := differsFromPage(out, step[2]); step[2] != "" && difference != "" {
			t.Errorf("%s: docs/quickstart.md shows\n%s", difference, step[2])
		}
		if strings.Contains(step[1], ciliumChart) { // its images are in a registry
			tb.mustKubectl(t, "--namespace", systemNamespace, "delete", "daemonset", "cilium", "cilium-envoy", "--cascade=foreground")
			tb.mustKubectl(t, "apply", "-f", "test/kubernetes/testdata/cilium.yaml")
		}
	}
	tb.hold(t)
}

func (tb *testbed) shell(t *testing.T, dir, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", commands)
	cmd.Dir, cmd.Env = dir, tb.admin(t.Context(), "kubectl").Env
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v; it printed %s and %s", commands, err, out, failure.String())
	}
	return string(out)
}

// differsFromPage returns the first line that is missing in one of both; the order of lines does not
// count, and a line … on the page stands for further ones.
func differsFromPage(output, page string) string {
	got, want := quickstartLines(output), quickstartLines(page)
	more := slices.Contains(want, "…")
	for _, line := range want {
		at := slices.Index(got, line)
		if at < 0 && line != "…" {
			return "the commands do not print a line like " + line
		}
		if at >= 0 {
			got = slices.Delete(got, at, at+1)
		}
	}
	if len(got) > 0 && !more {
		return "the commands also print " + got[0]
	}
	return ""
}

func quickstartLines(output string) []string {
	output = quickstartHash.ReplaceAllString(output, "-HASH")
	output = quickstartAge.ReplaceAllString(output, "AGE")
	output = quickstartNumber.ReplaceAllString(output, "0")
	var lines []string
	for line := range strings.Lines(output) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
