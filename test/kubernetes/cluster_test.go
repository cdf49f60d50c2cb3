package kubernetes

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// TestCluster runs the cases in one cluster. Each brings it into the state that it needs.
func TestCluster(t *testing.T) {
	tb := newTestbed(t, bridgeMode())
	tb.route(t)
	tb.install(t)
	tb.runCases(t, []testCase{
		{"Fresh", (*testbed).testFresh},
		{"Chaos", (*testbed).testChaos},
		{"Hung", (*testbed).testHung},
		{"Reboot", (*testbed).testReboot},
		{"Recreated", (*testbed).testRecreated},
		{"ConfigMap", (*testbed).testConfigMap},
		{"Upgrade", (*testbed).testUpgrade},
		{"Policy", (*testbed).testPolicy},
		{"Symptoms", (*testbed).testSymptoms},
		{"Audit", (*testbed).testAudit},
		{"Uninstall", (*testbed).testUninstall},
		{"Helm", (*testbed).testHelm},
		{"Release", (*testbed).testRelease},
	})
}

type testCase struct {
	name string
	run  func(*testbed, *testing.T)
}

func (tb *testbed) runCases(t *testing.T, cases []testCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(tb, t) })
	}
	tb.hold(t)
}

// hold keeps the cluster for $CLUSTER_TEST_HOLD, so that it can be examined.
func (tb *testbed) hold(t *testing.T) {
	t.Helper()
	length, err := time.ParseDuration(os.Getenv("CLUSTER_TEST_HOLD"))
	if err != nil {
		return
	}
	t.Logf("held for %s: nsenter --mount --net --pid --target PID_OF_KUBE_APISERVER env KUBECONFIG=%s %s get pods",
		length, filepath.Join(tb.dir, "admin.kubeconfig"), tb.bin("kubectl"))
	_ = cluster.Sleep(t.Context(), length)
}
