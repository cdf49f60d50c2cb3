package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/ciliumagent"
)

// networkName is the name of the delegated CNI network, and of host-local's directory.
const networkName = "pods"

// bridgeAddress is the bridge's --metrics-address, in the network namespace of the test.
const bridgeAddress = "127.0.0.1:9967"

// defineSidecar writes the CNI configuration with the real host-local, which only the sidecar reads:
// in crd mode cilium-cni does not delegate.
func (tb *testbed) defineSidecar(t *testing.T) {
	t.Helper()
	tb.writeNetwork(t, "net.d", tb.hostLocal())
	tb.sidecar = tb.newProgram(t, "sidecar", nil, tb.sidecarArgs()...)
}

// writeNetwork writes a CNI configuration with an ipam section into a directory of this test.
func (tb *testbed) writeNetwork(t *testing.T, dir string, ipam map[string]any) {
	t.Helper()
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0",
		"name":       networkName,
		"plugins":    []any{map[string]any{"type": "cilium-cni", "ipam": ipam}},
	})
	must(t, err)
	must(t, os.MkdirAll(tb.path(dir), 0o755))
	must(t, os.WriteFile(tb.path(dir, "05-pods.conflist"), conf, 0o644))
}

// sidecarArgs returns the command line of the sidecar with further flags, of which the last counts.
func (tb *testbed) sidecarArgs(flags ...string) []string {
	return append([]string{
		tb.ownProgram("delegated-ipam"), "serve",
		"--node-name=" + nodeName,
		"--socket-path=" + sidecarSocket,
		"--state-dir=" + tb.path("sidecar"),
		"--cni-conf-dir=" + tb.path("net.d"),
		"--cni-bin-dir=" + tb.plugins(),
		"--enable-ipv6=" + strconv.FormatBool(tb.dual),
	}, flags...)
}

// hostLocal returns the ipam section of a CNI configuration.
func (tb *testbed) hostLocal() map[string]any {
	var ranges [][]map[string]string
	for _, subnet := range tb.subnets {
		ranges = append(ranges, []map[string]string{{"subnet": subnet}})
	}
	return map[string]any{"type": "host-local", "dataDir": tb.path("host-local"), "ranges": ranges}
}

// plugins returns the directory of the real host-local.
func (tb *testbed) plugins() string { return filepath.Join(tb.root, ".cache", "plugins") }

// defineBridge defines the bridge with the service account of deploy/kubernetes/base/bridge.
func (tb *testbed) defineBridge(t *testing.T, releaseDelay time.Duration) {
	t.Helper()
	tb.bridge = tb.newProgram(t, "bridge", nil, tb.bridgeArgs("--excess-ip-release-delay="+releaseDelay.String())...)
}

// bridgeArgs returns the command line of the bridge with further flags, of which the last counts.
func (tb *testbed) bridgeArgs(flags ...string) []string {
	return append([]string{
		tb.ownProgram("delegated-ipam-bridge"),
		"--node-name=" + nodeName,
		"--kubeconfig=" + tb.kubeconfig("bridge"),
		"--host=unix://" + sidecarSocket,
		"--metrics-address=" + bridgeAddress,
		"--pre-allocate=" + strconv.Itoa(ciliumagent.PreAllocate),
	}, flags...)
}
