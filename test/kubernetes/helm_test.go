package kubernetes

import (
	"strconv"
	"strings"
	"testing"
	"time"
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

// testHelm installs, upgrades and removes the chart on the cluster that the manifests have left.
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

	tb.removePods(t)
	begin = time.Now()
	upgrade := []string{"upgrade", "delegated-ipam", "deploy/chart", "--namespace", systemNamespace, "--reuse-values", "--set"}
	tb.helm(t, append(upgrade, "uninstall=true")...)
	tb.uninstallReleased(t)
	tb.helm(t, append(upgrade, "uninstall=true,sidecar.enabled=false")...)
	tb.mustKubectl(t, "--namespace", systemNamespace, "rollout", "status", "daemonset", "delegated-ipam-uninstall", "--timeout=10m")
	tb.helm(t, "uninstall", "delegated-ipam", "--namespace", systemNamespace, "--wait")
	tb.record(t, "helm upgrade with uninstall, and helm uninstall", time.Since(begin))
	tb.checkNothingLeft(t)
}
