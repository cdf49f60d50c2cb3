package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// defineAgent defines the agent in crd mode, with a compiler in its PATH.
func (tb *testbed) defineAgent(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(tb.path("path"), 0o755))
	must(t, os.Symlink(cluster.MustEnv(t, "AGENT_TEST_CLANG", "agent-test"), tb.path("path", "clang")))
	tb.agent = tb.newAgent(t, "cilium-agent",
		"--ipam=crd",
		"--enable-endpoint-health-checking=true",
		"--enable-envoy-config=true", // the address of ingress; it needs no Envoy
		"--ipam-cilium-node-update-rate=1s",
	)
}

// newAgent defines an agent with flags in addition to those of every agent, which set the routing,
// the paths, and limits for a small machine.
func (tb *testbed) newAgent(t *testing.T, name string, flags ...string) *cluster.Program {
	t.Helper()
	env := []string{
		"PATH=" + tb.path("path") + ":" + tb.binDir() + ":" + os.Getenv("PATH"),
		"K8S_NODE_NAME=" + nodeName,
		"CILIUM_K8S_NAMESPACE=kube-system",
	}
	return tb.newProgram(t, name, env, append([]string{
		tb.bin("cilium-agent"),
		"--enable-endpoint-routes=true",
		"--routing-mode=native", "--ipv4-native-routing-cidr=10.42.0.0/16", "--ipv6-native-routing-cidr=fd00:42::/64",
		"--enable-ipv4=true", "--enable-ipv6=" + strconv.FormatBool(tb.dual),
		// Paths and devices.
		"--k8s-kubeconfig-path=" + tb.kubeconfig("admin"),
		"--devices=eth0",
		"--lib-dir=" + filepath.Join(tb.built, "lib"),
		"--bpf-root=/sys/fs/bpf", "--cgroup-root=/run/cilium/cgroupv2",
		"--identity-allocation-mode=crd",
		// Features that are not tested.
		"--kube-proxy-replacement=false", "--enable-l7-proxy=false", "--enable-hubble=false",
		"--enable-ipv4-masquerade=false", "--enable-ipv6-masquerade=false",
		"--bpf-map-dynamic-size-ratio=0", "--bpf-ct-global-tcp-max=65536", "--bpf-ct-global-any-max=65536",
		"--bpf-nat-global-max=65536", "--bpf-neigh-global-max=65536",
	}, flags...)...)
}

// endpoint is an endpoint in the agent's list.
type endpoint struct {
	// Pod is namespace/name; empty for endpoints of the agent, such as health.
	Pod string
	// State is "ready" when the datapath is.
	State string
	IPs   []netip.Addr
}

// getAgentAPI gets a resource of the agent's API.
func getAgentAPI(ctx context.Context, resource string, into any) error {
	client := http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", agentSocket)
			},
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/"+resource, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent answered %s: %s", resource, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// agentHealthy returns nil if the agent reports that it is healthy.
func agentHealthy(ctx context.Context) error {
	var health struct {
		Cilium struct{ State, Msg string }
	}
	if err := getAgentAPI(ctx, "healthz", &health); err != nil {
		return err
	}
	if health.Cilium.State != "Ok" {
		return fmt.Errorf("the agent is %s: %s", health.Cilium.State, health.Cilium.Msg)
	}
	return nil
}

// waitHealthy waits until the agent is healthy, and fails the test if it ends.
func (tb *testbed) waitHealthy(t *testing.T, now *cluster.Process) {
	t.Helper()
	cluster.MustEventually(t, "the agent to be healthy", 3*time.Minute, func() error {
		if !now.Running() {
			t.Fatalf("the agent ended; see %s", tb.path("cilium-agent.log"))
		}
		return agentHealthy(t.Context())
	})
}

// endpoints returns the agent's endpoints.
func endpoints(ctx context.Context) ([]endpoint, error) {
	var list []struct {
		Status struct {
			State               string
			ExternalIdentifiers struct {
				PodName string `json:"pod-name"`
			} `json:"external-identifiers"`
			Networking struct {
				Addressing []struct{ IPv4, IPv6 string }
			}
		}
	}
	if err := getAgentAPI(ctx, "endpoint", &list); err != nil {
		return nil, err
	}
	var all []endpoint
	var errs []error
	for _, item := range list {
		e := endpoint{Pod: item.Status.ExternalIdentifiers.PodName, State: item.Status.State}
		for _, pair := range item.Status.Networking.Addressing {
			for _, text := range []string{pair.IPv4, pair.IPv6} {
				if text == "" {
					continue
				}
				ip, err := netip.ParseAddr(text)
				errs = append(errs, err)
				e.IPs = append(e.IPs, ip)
			}
		}
		all = append(all, e)
	}
	return all, errors.Join(errs...)
}

// sharedAddresses returns an error for each address of two endpoints.
func sharedAddresses(list []endpoint) error {
	var errs []error
	holder := map[netip.Addr]string{}
	for _, e := range list {
		for _, ip := range e.IPs {
			if other, ok := holder[ip]; ok {
				errs = append(errs, fmt.Errorf("%s belongs to two endpoints, %q and %q", ip, other, e.Pod))
			}
			holder[ip] = e.Pod
		}
	}
	return errors.Join(errs...)
}
