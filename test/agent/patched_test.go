package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// newPatchedTestbed returns a testbed whose agent has the patch of deploy/cilium/agent: it gets its
// own addresses from the sidecar, and cilium-cni gets the addresses of pods from
// host-local.
func newPatchedTestbed(t *testing.T, nw network) *testbed {
	t.Helper()
	tb := newTestbed(t, nw, shortDelays())
	tb.delegatePods(t, tb.hostLocal())
	tb.sidecar = tb.newProgram(t, "patched-sidecar", nil, tb.sidecarArgs("--owners=router,health,ingress")...)
	tb.agent = tb.newPatchedAgent(t, "patched-agent")
	return tb
}

// delegatePods makes cilium-cni call the plugin of an ipam section for the addresses of pods.
func (tb *testbed) delegatePods(t *testing.T, ipam map[string]any) {
	t.Helper()
	conf, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": networkName, "type": "cilium-cni", "ipam": ipam})
	must(t, err)
	tb.netConf = string(conf)
}

// newPatchedAgent defines an agent with the patch, with health checking and the ingress address.
func (tb *testbed) newPatchedAgent(t *testing.T, name string, flags ...string) *cluster.Program {
	t.Helper()
	return tb.newAgent(t, name, patchedAgent, append(patchedFlags(), flags...)...)
}

// patchedAgent is the program that test/agent/build.sh makes with the patch.
const patchedAgent = "cilium-agent-delegated"

func patchedFlags() []string {
	return []string{
		"--ipam=delegated-plugin", "--delegated-ipam-socket=" + sidecarSocket,
		"--enable-endpoint-health-checking=true",
		"--enable-envoy-config=true", // the address of ingress; it needs no Envoy
	}
}

// newStockAgent defines the same agent without the patch: without health checking and ingress, and
// with a link-local address for the router.
func (tb *testbed) newStockAgent(t *testing.T) *cluster.Program {
	t.Helper()
	return tb.newAgent(t, "stock-agent", "cilium-agent",
		"--ipam=delegated-plugin", "--local-router-ipv4=169.254.23.0", "--local-router-ipv6=fe80::23:1", "--enable-endpoint-health-checking=false")
}

// agentAddresses are the addresses of each owner, in order.
type agentAddresses map[string][]netip.Addr

// mustAgentAddresses waits until the agent's addresses, the sidecar's list and the plugin's store
// agree about these owners, and returns the addresses. The store has no lease but those and the
// addresses of the given pods.
func (tb *testbed) mustAgentAddresses(t *testing.T, owners []string, pods ...*pod) agentAddresses {
	t.Helper()
	var got agentAddresses
	cluster.MustEventually(t, "agent, sidecar and plugin to agree", time.Minute, func() (err error) {
		got, err = tb.compareRecords(t.Context(), owners, pods)
		return err
	})
	return got
}

// wantSameAddresses waits as mustAgentAddresses, and wants the addresses of before.
func (tb *testbed) wantSameAddresses(t *testing.T, when string, before agentAddresses, owners []string, pods ...*pod) {
	t.Helper()
	now := tb.mustAgentAddresses(t, owners, pods...)
	for _, owner := range owners {
		if !slices.Equal(now[owner], before[owner]) {
			t.Errorf("%s: %s has %v; want %v", when, owner, now[owner], before[owner])
		}
	}
}

// compareRecords returns the addresses of the owners if agent, sidecar and host-local agree.
func (tb *testbed) compareRecords(ctx context.Context, owners []string, pods []*pod) (agentAddresses, error) {
	node, err := tb.kube.ciliumNode(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	agent := specAddresses(node)
	listed, err := listAttachments()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, owner := range owners {
		errs = append(errs, tb.checkFamilies(agent[owner]))
	}
	if want := len(owners); len(listed) != want {
		errs = append(errs, fmt.Errorf("the sidecar lists %d attachments; want %d", len(listed), want))
	}
	var podLeases []oracle.Lease
	held := harness.Leases(listed)
	for _, a := range listed {
		var ips []netip.Addr
		for _, address := range a.Addresses {
			ips = append(ips, address.IP)
		}
		slices.SortFunc(ips, netip.Addr.Compare)
		if a.State != "held" || !slices.Equal(ips, agent[a.Owner]) {
			errs = append(errs, fmt.Errorf("the sidecar's %s is %s with %v; the agent has %v", a.Owner, a.State, ips, agent[a.Owner]))
		}
	}
	for _, p := range pods {
		for _, ip := range p.ips {
			podLeases = append(podLeases, oracle.Lease{Network: networkName, IP: ip, ContainerID: p.sandbox, Interface: "eth0"})
		}
	}
	return agent, errors.Join(append(errs, tb.compareStore(append(held, podLeases...)))...)
}

// listAttachments returns the sidecar's list. The sidecar may be starting.
func listAttachments() ([]harness.Attachment, error) {
	return harness.Client{Socket: sidecarSocket}.TryList()
}

// compareStore returns nil if the plugin's store has exactly these leases. Of the scripted plugin the
// addresses are compared, because its plugin types identify a holder differently.
func (tb *testbed) compareStore(want []oracle.Lease) error {
	if tb.scriptedDir == "" {
		leases, err := oracle.HostLocal(tb.path("host-local"))
		return errors.Join(err, oracle.Compare(leases, want))
	}
	stored, err := os.ReadDir(filepath.Join(tb.scriptedDir, "store"))
	if err != nil {
		return err
	}
	var leases, held []oracle.Lease
	for _, e := range stored {
		ip, err := netip.ParseAddr(e.Name())
		if err != nil {
			return err
		}
		leases = append(leases, oracle.Lease{IP: ip})
	}
	for _, l := range want {
		held = append(held, oracle.Lease{IP: l.IP})
	}
	return oracle.Compare(leases, held)
}

// specAddresses returns the addresses that the agent has written into its CiliumNode.
func specAddresses(node *unstructured.Unstructured) agentAddresses {
	all := agentAddresses{}
	add := func(owner, text string) {
		if ip, err := netip.ParseAddr(text); err == nil {
			all[owner] = append(all[owner], ip)
			slices.SortFunc(all[owner], netip.Addr.Compare)
		}
	}
	entries, _, _ := unstructured.NestedSlice(node.Object, "spec", "addresses")
	for _, e := range entries {
		if fields, _ := e.(map[string]any); fields["type"] == "CiliumInternalIP" {
			ip, _ := fields["ip"].(string)
			add("router", ip)
		}
	}
	for _, owner := range []string{"health", "ingress"} {
		for _, key := range []string{"ipv4", "ipv6"} {
			ip, _, _ := unstructured.NestedString(node.Object, "spec", owner, key)
			add(owner, ip)
		}
	}
	return all
}
