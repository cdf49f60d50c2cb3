// Package whereabouts tests the sidecar with the real whereabouts over a real kube-apiserver.
// "make plugin-test" builds the programs and runs the tests in separate namespaces; plain "go test"
// skips them. test/README.md describes requirements and tests.
package whereabouts

import (
	"os"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) {
	if !cluster.Namespaced() {
		os.Exit(m.Run()) // every test is skipped
	}
	harness.Main(m)
}

// Trap: the behaviour of the real whereabouts. All cases use one API server, because starting it takes most of the time.
// Each case has its own Kubernetes namespace, and so its own IPPools.
func TestWhereabouts(t *testing.T) {
	tb := newTestbed(t)
	type cases map[string]func(*testing.T, *testbed)
	group := func(name string, all cases) {
		t.Run(name, func(t *testing.T) {
			for name, test := range all {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, tb)
				})
			}
		})
	}
	group("plugin", cases{
		"ADD again":                 testAddAgain,
		"ADD with another ID":       testAddOtherID,
		"ADD of another interface":  testAddOtherInterface,
		"ADD without pod name":      testAddWithoutPod,
		"ADD with IP=":              testAddWithIP,
		"ADD, update forbidden":     testAddRefused,
		"ADD, one of two forbidden": testAddRefusedTwoRanges,
		"CHECK":                     testCheck,
		"DEL by container ID":       testDelByContainerID,
		"DEL without pod name":      testDelWithoutPod,
		"DEL, update forbidden":     func(t *testing.T, tb *testbed) { testDelRefused(t, tb, forbidUpdates) },
		"DEL, update invalid":       func(t *testing.T, tb *testbed) { testDelRefused(t, tb, invalidateUpdates) },
		"DEL, update delayed":       func(t *testing.T, tb *testbed) { testDelRefused(t, tb, delayUpdates) },
		"DEL of the second range":   testDelSecondRange,
		"node slices":               testNodeSlices,
		"GC and STATUS":             testGCAndStatus,
		"without its configuration": testWithoutFlatFile,
	})
	group("sidecar", cases{
		"allocate":                testAllocate,
		"allocate dual-stack":     testAllocateDualStack,
		"verify":                  testVerify,
		"restart after SIGTERM":   func(t *testing.T, tb *testbed) { testRestart(t, tb, (*harness.Sidecar).Stop) },
		"restart after SIGKILL":   func(t *testing.T, tb *testbed) { testRestart(t, tb, (*harness.Sidecar).Kill) },
		"lost journal":            testLostJournal,
		"interrupted release":     testReleaseInterrupted,
		"profile try":             testTry,
		"reclaim":                 testReclaim,
		"reclaim lost nodes":      testReclaimLostNodes,
		"plugin-timeout too long": testPluginTimeout,
		"update forbidden":        func(t *testing.T, tb *testbed) { testReleaseRefused(t, tb, forbidUpdates) },
		"update invalid":          func(t *testing.T, tb *testbed) { testReleaseRefused(t, tb, invalidateUpdates) },
		"update delayed":          func(t *testing.T, tb *testbed) { testReleaseRefused(t, tb, delayUpdates) },
	})
	t.Run("API server down", func(t *testing.T) { testServerDown(t, tb) })
}
