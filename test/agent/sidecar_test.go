package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// networkName is that of the delegated CNI network, and of host-local's directory.
const networkName = "pods"

// preAllocate is the bridge's default: how many slots are free.
const preAllocate = 8

// defineSidecar writes the CNI configuration of the delegated plugin, the real
// host-local. Only the sidecar reads it: in crd mode cilium-cni delegates nothing.
func (l *lab) defineSidecar(t *testing.T) {
	t.Helper()
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0",
		"name":       networkName,
		"plugins":    []any{map[string]any{"type": "cilium-cni", "ipam": l.hostLocal()}},
	})
	must(t, err)
	must(t, os.MkdirAll(l.path("net.d"), 0o755))
	must(t, os.WriteFile(l.path("net.d", "05-pods.conflist"), conf, 0o644))
	l.sidecar = l.define(t, "sidecar", nil, l.own("delegated-ipam"), "serve",
		"--node-name="+nodeName,
		"--socket-path="+sidecarSocket,
		"--state-dir="+l.path("sidecar"),
		"--cni-conf-dir="+l.path("net.d"),
		"--cni-bin-dir="+l.plugins(),
		"--enable-ipv6="+strconv.FormatBool(l.dual),
	)
}

// hostLocal is the ipam section of a CNI configuration.
func (l *lab) hostLocal() map[string]any {
	var ranges [][]map[string]string
	for _, subnet := range l.subnets {
		ranges = append(ranges, []map[string]string{{"subnet": subnet}})
	}
	return map[string]any{"type": "host-local", "dataDir": l.path("host-local"), "ranges": ranges}
}

// plugins is the directory of the real host-local.
func (l *lab) plugins() string { return filepath.Join(l.root, ".cache", "plugins") }

// defineBridge uses the service account that deploy/kubernetes/bridge defines.
func (l *lab) defineBridge(t *testing.T, releaseDelay time.Duration) {
	t.Helper()
	l.bridge = l.define(t, "bridge", nil, l.own("delegated-ipam-bridge"),
		"--node-name="+nodeName,
		"--kubeconfig="+l.kubeconfig("bridge"),
		"--host=unix://"+sidecarSocket,
		"--pre-allocate="+strconv.Itoa(preAllocate),
		"--excess-ip-release-delay="+releaseDelay.String(),
	)
}
