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
)

// defineAgent gives the agent a path with a compiler, and the flags of crd mode.
func (l *lab) defineAgent(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(l.path("path"), 0o755))
	must(t, os.Symlink(mustEnv(t, "AGENT_TEST_CLANG"), l.path("path", "clang")))
	l.agent = l.agentWith(t, "cilium-agent",
		"--ipam=crd",
		"--enable-endpoint-health-checking=true",
		"--enable-envoy-config=true", // the address of ingress; it needs no Envoy
		"--ipam-cilium-node-update-rate=1s",
	)
}

// agentWith is an agent with some flags besides those that each gets: how it
// routes, where it is, and what keeps it from needing more of the machine than
// there is.
func (l *lab) agentWith(t *testing.T, name string, flags ...string) *program {
	t.Helper()
	env := []string{
		"PATH=" + l.path("path") + ":" + l.binDir() + ":" + os.Getenv("PATH"),
		"K8S_NODE_NAME=" + nodeName,
		"CILIUM_K8S_NAMESPACE=kube-system",
	}
	return l.define(t, name, env, append([]string{
		l.bin("cilium-agent"),
		"--enable-endpoint-routes=true",
		"--routing-mode=native", "--ipv4-native-routing-cidr=10.42.0.0/16", "--ipv6-native-routing-cidr=fd00:42::/64",
		"--enable-ipv4=true", "--enable-ipv6=" + strconv.FormatBool(l.dual),
		// Where it is.
		"--k8s-kubeconfig-path=" + l.kubeconfig("admin"),
		"--devices=eth0",
		"--lib-dir=" + filepath.Join(l.built, "lib"),
		"--bpf-root=/sys/fs/bpf", "--cgroup-root=/run/cilium/cgroupv2",
		"--identity-allocation-mode=crd",
		// What is not tried here.
		"--kube-proxy-replacement=false", "--enable-l7-proxy=false", "--enable-hubble=false",
		"--enable-ipv4-masquerade=false", "--enable-ipv6-masquerade=false",
		"--bpf-map-dynamic-size-ratio=0", "--bpf-ct-global-tcp-max=65536", "--bpf-ct-global-any-max=65536",
		"--bpf-nat-global-max=65536", "--bpf-neigh-global-max=65536",
	}, flags...)...)
}

// endpoint is one of the agent's list.
type endpoint struct {
	// Pod is namespace/name; empty for the agent's own, such as health.
	Pod string
	// State is "ready" when its datapath is.
	State string
	IPs   []netip.Addr
}

// askAgent gets a page of the agent's API.
func askAgent(ctx context.Context, page string, into any) error {
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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/"+page, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent answers %s to %s", response.Status, page)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// agentOK is nil if the agent says that all is well.
func agentOK(ctx context.Context) error {
	var health struct {
		Cilium struct{ State, Msg string }
	}
	if err := askAgent(ctx, "healthz", &health); err != nil {
		return err
	}
	if health.Cilium.State != "Ok" {
		return fmt.Errorf("the agent is %s: %s", health.Cilium.State, health.Cilium.Msg)
	}
	return nil
}

// mustServe waits until the agent is well, and says so if it ended instead.
func (l *lab) mustServe(t *testing.T, now *life) {
	t.Helper()
	mustEventually(t, "the agent to be well", 3*time.Minute, func() error {
		if !now.running() {
			t.Fatalf("the agent ended; see %s", l.path("cilium-agent.log"))
		}
		return agentOK(t.Context())
	})
}

// endpoints is the agent's list.
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
	if err := askAgent(ctx, "endpoint", &list); err != nil {
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

// shared names the addresses that two endpoints have.
func shared(list []endpoint) error {
	var errs []error
	holder := map[netip.Addr]string{}
	for _, e := range list {
		for _, ip := range e.IPs {
			if other, ok := holder[ip]; ok {
				errs = append(errs, fmt.Errorf("%s is of two endpoints, %q and %q", ip, other, e.Pod))
			}
			holder[ip] = e.Pod
		}
	}
	return errors.Join(errs...)
}
