package benchbridge

import (
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// supplier is what fills the pools.
type supplier string

const (
	// ownRange: a bridge on each node, with a plugin whose range is the node's own.
	ownRange supplier = "own range"
	// sharedRange: a bridge on each node, with a plugin for the whole cluster.
	sharedRange supplier = "shared range"
	// operator: one process with cilium-operator's allocation logic, which takes the CiliumNodes whose
	// names begin with operatorPrefix.
	operator supplier = "cilium-operator"
)

const (
	operatorPrefix = "operator-"
	ownPrefix      = "own-"
)

// defaultReleaseDelay is the default of --excess-ip-release-delay.
const defaultReleaseDelay = 3 * time.Minute

// prefix returns the prefix of the names of a case's nodes.
func (s supplier) prefix(name string) string {
	switch s {
	case operator:
		return operatorPrefix + name
	case ownRange:
		return ownPrefix + name
	default:
		return name
	}
}

// options returns the options of a node that this supplier serves. The operator reads its settings from
// the CiliumNode.
func (s supplier) options(o nodeOptions) nodeOptions {
	if o.ownRange = s == ownRange; s != operator {
		o.ipam = nil
		return o
	}
	ipam := map[string]any{"min-allocate": int64(freeAddresses), "pre-allocate": int64(freeAddresses)}
	maps.Copy(ipam, o.ipam)
	o.ipam, o.withoutBridge = ipam, true
	return o
}

// setPreAllocate changes the number of free addresses of a node.
func (s supplier) setPreAllocate(t *testing.T, b *bench, n *node, preAllocate int) {
	t.Helper()
	if s != operator {
		n.killBridge()
		n.startBridge(t, b, fmt.Sprintf("--pre-allocate=%d", preAllocate))
		return
	}
	patch := fmt.Appendf(nil, `{"spec":{"ipam":{"pre-allocate":%d}}}`, preAllocate)
	_, err := b.objects.Resource(ciliumNodes()).Patch(t.Context(), n.name, types.MergePatchType, patch, metav1.PatchOptions{})
	harness.Must(t, err)
}

// startOperator starts the operator until the test ends.
func (b *bench) startOperator(t *testing.T) {
	t.Helper()
	cluster.NewProgram(t, b.dir, "operator", nil, b.operator,
		"-kubeconfig", b.operatorKubeconfig, "-prefix", operatorPrefix, "-delay", pluginDelay.String(),
		"-release-delay", releaseDelay.String(),
	).MustStart(t)
}
