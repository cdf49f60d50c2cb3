package agent

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// The agent releases the address of health after its CiliumNode has none any more. It continues to
// announce the address of ingress, and releases it after the BPF map is gone, as after a reboot.
func TestPatchedAgentFeaturesOff(t *testing.T) {
	tb := newPatchedTestbed(t, dualStack())
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	own := tb.mustAgentAddresses(t, agentOwners())
	tb.checkIngress(t, own["ingress"]) // from there the next agent restores it

	tb.agent.End(syscall.SIGTERM)
	without := tb.newPatchedAgent(t, "agent-without-features", "--enable-endpoint-health-checking=false", "--enable-envoy-config=false")
	tb.waitHealthy(t, without.MustStart(t))
	tb.wantSameAddresses(t, "without health and ingress", own, []string{"router", "ingress"})

	without.End(syscall.SIGTERM)
	maps, err := filepath.Glob("/sys/fs/bpf/tc/globals/cilium_ipcache*")
	must(t, err)
	if len(maps) == 0 {
		t.Fatal("the map of the ipcache is missing")
	}
	for _, m := range maps {
		must(t, os.Remove(m))
	}
	tb.waitHealthy(t, without.MustStart(t))
	tb.wantSameAddresses(t, "after the loss of the BPF map", own, []string{"router"})

	without.End(syscall.SIGTERM)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	now := tb.mustAgentAddresses(t, agentOwners())
	tb.checkPatchedConnectivity(t, now, nil)
}

// The agent sends the name of its default pool with each request.
func TestPatchedAgentPool(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	tb.sidecar = tb.newProgram(t, "blue-sidecar", nil, tb.sidecarArgs("--owners=router,health,ingress", "--ipam-default-ip-pool=blue")...)
	tb.sidecar.MustStart(t)
	tb.agent = tb.newPatchedAgent(t, "blue-agent", "--ipam-default-ip-pool=blue")
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tb.mustAgentAddresses(t, agentOwners())
	listed, err := listAttachments()
	must(t, err)
	for _, a := range listed {
		if a.Pool != "blue" {
			t.Errorf("%s is in pool %q; want blue", a.Owner, a.Pool)
		}
	}
}

// In a range that is too small the agent ends with the plugin's text. It starts when the range has
// grown.
func TestPatchedAgentFullRange(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	wide := tb.hostLocal()
	tb.subnets = []string{"10.42.0.0/30"} // of which the plugin keeps the gateway
	tb.writeNetwork(t, "net.d", tb.hostLocal())
	tb.sidecar.MustStart(t)
	now := tb.agent.MustStart(t)
	cluster.MustEventually(t, "the agent to end", 2*time.Minute, func() error {
		if now.Running() {
			return errors.New("it runs")
		}
		return nil
	})
	log, err := os.ReadFile(tb.path(tb.agent.Name() + ".log"))
	must(t, err)
	reason := regexp.MustCompile(`(?m)^.*msg="Failed to start hive".*$`).FindString(string(log))
	if want := "no IP addresses available in range set"; !strings.Contains(reason, want) {
		t.Errorf("the agent ended with %q; want %q in it", reason, want)
	}
	if strings.Contains(reason, "ipam-range-full") {
		t.Errorf("the agent ended with %q; want only the plugin's reason", reason)
	}

	tb.subnets = ipv4Only().subnets
	tb.writeNetwork(t, "net.d", wide)
	tb.signal(t, tb.sidecar, syscall.SIGHUP)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	tb.mustAgentAddresses(t, agentOwners())
}

// The plugin's range begins with the address of the node, which the agent refuses.
func TestPatchedAgentExcludedAddress(t *testing.T) {
	tb := newPatchedTestbed(t, ipv4Only())
	ipam := tb.hostLocal()
	tb.subnets = []string{"192.0.2.0/24"}
	node := tb.nodeIPs[0].String()
	ipam["ranges"] = [][]map[string]string{{{"subnet": tb.subnets[0], "rangeStart": node, "rangeEnd": "192.0.2.50"}}}
	tb.writeNetwork(t, "net.d", ipam)
	tb.sidecar = tb.newProgram(t, "excluding-sidecar", nil, tb.sidecarArgs("--owners=router,health,ingress", "--exclude-addresses="+node)...)
	tb.sidecar.MustStart(t)
	tb.waitHealthy(t, tb.agent.MustStart(t))
	var excluded bool
	listed, err := listAttachments()
	must(t, err)
	for _, a := range listed {
		for _, address := range a.Addresses {
			own := a.Owner == "excluded:"+node
			if excluded = excluded || own; (address.IP.String() == node) != own {
				t.Errorf("%s has %s; want %s only for its own attachment", a.Owner, address.IP, node)
			}
		}
	}
	if !excluded || len(listed) != len(agentOwners())+1 {
		t.Errorf("the sidecar lists %d attachments, the excluded one among them: %v; want those of the agent and that one", len(listed), excluded)
	}
}
