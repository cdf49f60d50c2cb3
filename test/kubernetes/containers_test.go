package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const (
	// sidecarSocket and sidecarState are the sidecar's on a node.
	sidecarSocket = "/run/cilium/delegated-ipam.sock"
	sidecarState  = "/var/lib/delegated-ipam"
	// networkFile is the CNI configuration, which runtime and sidecar read.
	networkFile = "/etc/cni/net.d/05-pods.conflist"
	networkName = "pods"
	// containerOwner begins the owners of a runtime's interfaces.
	containerOwner = "cni/"
)

// podsMode is ipam mode delegated-plugin: the patched agents and, by delegated-ipam-cni, the pods get
// their addresses from the sidecar.
func podsMode() mode {
	return mode{
		manifests: "deploy/kubernetes/overlays/pods",
		agent:     "cilium-agent-delegated",
		agentFlags: []string{
			"--ipam=delegated-plugin", "--delegated-ipam-socket=" + sidecarSocket,
			// By default an agent refuses pods (429) when it is busy with those before.
			"--api-rate-limit=endpoint-create=auto-adjust:false,rate-limit:50/s,rate-burst:50,parallel-requests:4,max-wait-duration:60s",
		},
		checkNode: (*testbed).checkContainers,
	}
}

// cniPlugin returns the first plugin of the node's CNI configuration: with host-local for pods, or
// with the sidecar over it.
func (tb *testbed) cniPlugin(t *testing.T, n *node, throughSidecar bool) map[string]any {
	t.Helper()
	var ranges [][]map[string]string
	for _, cidr := range tb.mustPodCIDRs(t, n) {
		ranges = append(ranges, []map[string]string{{"subnet": cidr.String()}})
	}
	ipam := map[string]any{"type": "host-local", "ranges": ranges}
	if throughSidecar {
		ipam = map[string]any{"type": "delegated-ipam-cni", "delegate": ipam}
	}
	return map[string]any{"type": "cilium-cni", "log-file": "/run/cilium/cilium-cni.log", "ipam": ipam}
}

// writeNetworks writes the CNI configuration of each node.
func (tb *testbed) writeNetworks(t *testing.T, throughSidecar bool) {
	t.Helper()
	for _, n := range tb.nodes {
		data, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": networkName, "plugins": []any{tb.cniPlugin(t, n, throughSidecar)}})
		harness.Must(t, err)
		harness.Must(t, os.WriteFile(n.path(networkFile+".new"), data, 0o644))
		harness.Must(t, os.Rename(n.path(networkFile+".new"), n.path(networkFile)))
	}
}

// attachments returns the list of the node's sidecar.
func (n *node) attachments() ([]harness.Attachment, error) {
	return harness.Client{Socket: n.path(sidecarSocket)}.TryList()
}

// checkContainers checks the records of one node without a pool: journal, sidecar and host-local have
// the same leases, which are those of the agent and of the running pods.
func (tb *testbed) checkContainers(ctx context.Context, n *node, pods []corev1.Pod) error {
	listed, err := n.attachments()
	if err != nil {
		return err
	}
	store, _, err := oracle.HostLocalAfterKill(n.path(leaseDir))
	if err != nil {
		return err
	}
	onDisk, err := oracle.Journal(n.path(sidecarState))
	if err != nil {
		return err
	}
	cidrs, err := tb.podCIDRs(ctx, n)
	if err != nil {
		return err
	}
	errs := []error{oracle.CompareAttachments(onDisk, harness.KeptRecords(listed)), oracle.Compare(store, harness.Leases(listed))}
	unused, agents := map[netip.Addr]string{}, 0
	for _, a := range listed {
		if !strings.HasPrefix(a.Owner, containerOwner) {
			agents++
			continue
		}
		for _, address := range a.Addresses {
			unused[address.IP] = a.Owner
			if !inRanges(cidrs, address.IP) {
				errs = append(errs, fmt.Errorf("%s of %s is not in %v", address.IP, a.Owner, cidrs))
			}
		}
	}
	if agents != agentAddresses {
		errs = append(errs, fmt.Errorf("the agent has %d attachments; want %d", agents, agentAddresses))
	}
	for _, p := range pods {
		if p.Spec.NodeName != n.name {
			continue
		}
		if len(p.Status.PodIPs) != tb.families() {
			errs = append(errs, fmt.Errorf("pod %s has addresses %v; want %d", p.Name, p.Status.PodIPs, tb.families()))
		}
		for _, text := range p.Status.PodIPs {
			ip, err := netip.ParseAddr(text.IP)
			if _, ok := unused[ip]; !ok || err != nil {
				errs = append(errs, errors.Join(fmt.Errorf("%s of pod %s is not in the sidecar's list", text.IP, p.Name), err))
			}
			delete(unused, ip)
		}
	}
	for ip, owner := range unused {
		errs = append(errs, fmt.Errorf("%s of %s belongs to no pod", ip, owner))
	}
	return errors.Join(errs...)
}

// collect calls GC on each node, as a runtime of CNI 1.1.0 does: with the containers that it has. It
// returns the owners of other containers: containerd 1.6 does not call GC, and might forget a sandbox
// when it is killed. No pod may be starting.
func (tb *testbed) collect(t *testing.T) []string {
	t.Helper()
	var lost []string
	for _, n := range tb.nodes {
		cluster.MustEventually(t, "GC on "+n.name, convergeTimeout, func() error { // a program may be starting
			owners, err := tb.collectNode(t, n)
			lost = append(lost, owners...)
			return err
		})
	}
	return lost
}

func (tb *testbed) collectNode(t *testing.T, n *node) (lost []string, err error) {
	t.Helper()
	out, err := n.command(t.Context(), "ctr", "--namespace=k8s.io", "containers", "list", "--quiet")
	if err != nil {
		return nil, err
	}
	listed, err := n.attachments()
	if err != nil {
		return nil, err
	}
	containers := strings.Fields(out)
	for _, a := range listed {
		if strings.HasPrefix(a.Owner, containerOwner) && !slices.Contains(containers, a.ContainerID) {
			lost = append(lost, a.Owner)
		}
	}
	valid := []any{}
	for _, id := range containers {
		valid = append(valid, map[string]string{"containerID": id, "ifname": "eth0"})
	}
	conf := tb.cniPlugin(t, n, true)
	conf["cniVersion"], conf["name"], conf["cni.dev/valid-attachments"] = "1.1.0", networkName, valid
	data, err := json.Marshal(conf)
	harness.Must(t, err)
	_, err = n.command(t.Context(), "sh", "-c",
		`printf %s "$1" | CNI_COMMAND=GC CNI_PATH=/opt/cni/bin /opt/cni/bin/delegated-ipam-cni`, "gc", string(data))
	if err != nil {
		return nil, err
	}
	return lost, nil
}
