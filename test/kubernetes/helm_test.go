package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// helm runs helm with the chart.
func (tb *testbed) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tb.admin(t.Context(), "helm", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// chartFlags names the chart, its release and the images, whose tag is otherwise the chart's version.
func (tb *testbed) chartFlags(more ...string) []string {
	values := "sidecar.image.tag=local,bridge.image.tag=local"
	return append([]string{
		"delegated-ipam", "deploy/chart", "--namespace", systemNamespace, "--set", values,
		"--set-string", "sidecar.options.enable-ipv6=" + strconv.FormatBool(tb.dual),
	}, more...)
}

// testHelm installs, upgrades, tests and removes the chart on the cluster that the manifests have left.
func (tb *testbed) testHelm(t *testing.T) {
	if len(tb.generations(t)) > 0 {
		tb.testUninstall(t)
	}
	tb.helm(t, "lint", "deploy/chart", "--strict")
	begin := time.Now()
	tb.helm(t, append([]string{"upgrade", "--install"}, tb.chartFlags()...)...)
	tb.waitHealthy(t, "the chart to be installed")
	tb.record(t, "helm upgrade --install", time.Since(begin))
	tb.ensurePods(t)
	tb.waitRecords(t, "after the installation by Helm")
	tb.checkConnectivity(t)

	m := tb.startMonitor(t)
	begin = time.Now()
	tb.helm(t, append([]string{"upgrade"}, tb.chartFlags("--set", "sidecar.options.log-level=debug,bridge.options.log-level=debug")...)...)
	tb.waitHealthy(t, "the upgrade to be rolled out")
	for _, n := range tb.nodes {
		if out := tb.mustKubectl(t, "--namespace", systemNamespace, "logs", tb.sidecarPod(t, n).Name); !strings.Contains(out, "level=debug") {
			t.Errorf("the sidecar of %s does not log with log-level=debug", n.name)
		}
	}
	tb.record(t, "helm upgrade with another option", time.Since(begin))
	tb.waitRecords(t, "after the upgrade by Helm")
	m.stop(t)

	tb.helm(t, "test", "delegated-ipam", "--namespace", systemNamespace, "--timeout", "5m")
	// While pods have addresses of the pools, nothing is removed.
	if out, err := tb.admin(t.Context(), "helm", "uninstall", "delegated-ipam", "--namespace", systemNamespace, "--timeout", "5m"); err == nil {
		t.Fatalf("uninstalled beside running pods: %s", out)
	}
	log := tb.mustKubectl(t, "--namespace", systemNamespace, "logs", "job/delegated-ipam-uninstall-prepare")
	if !strings.Contains(log, "belong to pods") {
		t.Errorf("the log of the refusal is %s", log)
	}
	tb.waitHealthy(t, "the bridges after the refusal")
	tb.helmUninstall(t)
}

// helmUninstall removes the release after its pods.
func (tb *testbed) helmUninstall(t *testing.T) {
	t.Helper()
	tb.removePods(t)
	begin := time.Now()
	tb.helm(t, "uninstall", "delegated-ipam", "--namespace", systemNamespace, "--wait", "--timeout", "15m")
	tb.record(t, "helm uninstall, which releases the addresses of both nodes", time.Since(begin))
	tb.checkNothingLeft(t)
}

// releaseVersion is that of the release that "make cluster-test" builds.
const releaseVersion = "0.0.0-snapshot"

// testRelease installs a release with its files alone: images, chart and plain manifests.
func (tb *testbed) testRelease(t *testing.T) {
	files := filepath.Join(tb.built, "release", "v"+releaseVersion)
	dir := t.TempDir() // outside of the repository
	harness.Must(t, os.CopyFS(dir, os.DirFS(files)))
	inDir := func(program string, args ...string) string {
		t.Helper()
		cmd := tb.adminCommand(t.Context(), program, args...)
		cmd.Dir = dir
		out, err := run(cmd)
		harness.Must(t, err)
		return out
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dir
	_, err := run(check)
	harness.Must(t, err)
	for _, n := range tb.nodes {
		for _, archive := range []string{"delegated-ipam-image.tar", "delegated-ipam-bridge-image.tar"} {
			_, err := n.command(t.Context(), "ctr", "--namespace=k8s.io", "images", "import", filepath.Join(files, archive))
			harness.Must(t, err)
		}
	}
	wantImages := func() {
		t.Helper()
		images := tb.mustKubectl(t, "--namespace", systemNamespace, "get", "daemonsets", "--output=jsonpath={.items[*].spec.template.spec.containers[*].image}")
		for image := range strings.FieldsSeq(images) {
			if strings.Contains(image, "delegated-ipam") && !strings.HasSuffix(image, ":v"+releaseVersion) {
				t.Errorf("%s runs; want the image of the release", image)
			}
		}
	}

	tb.removePools(t)
	begin := time.Now()
	inDir("helm", "install", "delegated-ipam", "delegated-ipam-"+releaseVersion+".tgz", "--namespace", systemNamespace,
		"--set-string", "sidecar.options.enable-ipv6="+strconv.FormatBool(tb.dual))
	tb.waitHealthy(t, "the chart of the release to be installed")
	tb.record(t, "helm install of the release's chart", time.Since(begin))
	wantImages()
	tb.ensurePods(t)
	tb.waitRecords(t, "after the installation of the release's chart")
	tb.checkConnectivity(t)
	inDir("helm", "test", "delegated-ipam", "--namespace", systemNamespace, "--timeout", "5m")
	tb.helmUninstall(t)
	if tb.dual {
		return // the plain manifests are for IPv4
	}

	tb.removePools(t)
	inDir("kubectl", "apply", "--filename", "kubernetes-with-bridge.yaml")
	tb.waitHealthy(t, "the manifests of the release to be installed")
	wantImages()
	tb.ensurePods(t)
	tb.waitRecords(t, "after the installation of the release's manifests")
	tb.checkConnectivity(t)
	tb.removePods(t)
	inDir("kubectl", "delete", "--filename", "kubernetes-bridge.yaml", "--ignore-not-found")
	inDir("kubectl", "apply", "--filename", "kubernetes-uninstall.yaml")
	tb.uninstallReleased(t)
	tb.mustKubectl(t, "--namespace", systemNamespace, "delete", "daemonset", "delegated-ipam", "delegated-ipam-network")
	tb.mustKubectl(t, "--namespace", systemNamespace, "rollout", "status", "daemonset", "delegated-ipam-uninstall", "--timeout=10m")
	inDir("kubectl", "delete", "--filename", "kubernetes-uninstall.yaml")
	inDir("kubectl", "delete", "--filename", "kubernetes-with-bridge.yaml", "--ignore-not-found")
	tb.checkNothingLeft(t)
}
