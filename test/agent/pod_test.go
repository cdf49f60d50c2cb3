package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/vishvananda/netns"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

const (
	podNamespace = "default"
	podPort      = "8080"
	// healthPort is the port of the agent's health endpoint (--cluster-health-port).
	healthPort = "4240"
	// agentsNetConf is the configuration of cilium-cni if the agent allocates the addresses.
	agentsNetConf = `{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni","log-file":"/run/cilium/cilium-cni.log"}]}`
)

// pod is a network namespace with the interface of cilium-cni, and a server.
type pod struct {
	name string
	// sandbox is CNI_CONTAINERID, a new one for each attempt, as by the kubelet; attempts counts them.
	sandbox  string
	attempts int
	ips      []netip.Addr
	server   net.Listener
}

func (p *pod) netns() string { return fmt.Sprintf("%s-%d", p.name, p.attempts) }

// createPod creates a pod, unless it exists, and returns its UID.
func (tb *testbed) createPod(ctx context.Context, name string) (string, error) {
	pod := cluster.Object("v1", "Pod", name)
	pod.Object["spec"] = map[string]any{
		"nodeName":   nodeName,
		"containers": []any{map[string]any{"name": "app", "image": "none"}},
	}
	found, err := tb.Pods(podNamespace).Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		found, err = tb.Pods(podNamespace).Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return "", err
	}
	return string(found.GetUID()), nil
}

func (tb *testbed) deletePod(ctx context.Context, name string) error {
	err := tb.Pods(podNamespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// newSandbox creates the network namespace of the next attempt, unless it exists.
func (p *pod) newSandbox() error {
	if p.sandbox != "" {
		return nil
	}
	p.attempts++
	p.sandbox = fmt.Sprintf("%x", sha256.Sum256([]byte(p.netns()))) // cilium-cni derives interface names from it
	if err := cluster.RunLine("ip netns add " + p.netns()); err != nil {
		return err
	}
	return cluster.RunLine("ip -n " + p.netns() + " link set lo up")
}

// addPod tries once to start a pod with its server. After a failure dropPod must delete the sandbox.
func (tb *testbed) addPod(ctx context.Context, p *pod) error {
	uid, err := tb.createPod(ctx, p.name)
	if err != nil {
		return err
	}
	if err := p.newSandbox(); err != nil {
		return err
	}
	out, err := tb.cni(ctx, "ADD", p, uid)
	if err != nil {
		return err
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return errors.Join(fmt.Errorf("cilium-cni printed %q", out), err)
	}
	p.ips = nil
	for _, ip := range result.IPs {
		p.ips = append(p.ips, ip.Address.Addr())
	}
	if err := tb.checkFamilies(p.ips); err != nil {
		return fmt.Errorf("cilium-cni's result for %s: %w", p.name, err)
	}
	return p.serve()
}

// dropPod deletes a pod's sandbox. It can be repeated until it succeeds.
func (tb *testbed) dropPod(ctx context.Context, p *pod) error {
	if p.sandbox == "" {
		return nil
	}
	if p.server != nil {
		p.server.Close()
		p.server = nil
	}
	if _, err := tb.cni(ctx, "DEL", p, ""); err != nil {
		return err
	}
	if err := cluster.RunLine("ip netns del " + p.netns()); err != nil {
		return err
	}
	p.sandbox, p.ips = "", nil
	return nil
}

// cni calls cilium-cni, or the chain that has it, as a container runtime does.
func (tb *testbed) cni(ctx context.Context, verb string, p *pod, uid string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	conf := []byte(tb.netConf)
	if tb.chain != "" {
		files, err := libcni.ConfFiles(tb.chain, []string{".conflist"})
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no CNI configuration in %s (%w)", tb.chain, err)
		}
		if conf, err = os.ReadFile(files[0]); err != nil {
			return nil, err
		}
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return nil, err
	}
	call := &libcni.RuntimeConf{
		ContainerID: p.sandbox, NetNS: "/run/netns/" + p.netns(), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", podNamespace},
			{"K8S_POD_NAME", p.name},
			{"K8S_POD_INFRA_CONTAINER_ID", p.sandbox},
			{"K8S_POD_UID", uid},
		},
	}
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: io.Discard}} // cilium-cni's log
	runner := libcni.NewCNIConfigWithCacheDir([]string{tb.binDir(), tb.pluginDir}, tb.path("cni-cache"), exec)
	if verb == "DEL" {
		return nil, runner.DelNetworkList(ctx, list, call)
	}
	result, err := runner.AddNetworkList(ctx, list, call)
	if err != nil {
		return nil, fmt.Errorf("%s for %s: %w", verb, p.netns(), err)
	}
	var out bytes.Buffer
	err = result.PrintTo(&out)
	return out.Bytes(), err
}

// inNetns calls f on a thread in a network namespace. Sockets of f stay in the namespace. The thread
// exits afterwards, because it must not run other goroutines.
func inNetns(namespace string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without unlock the runtime discards the thread
		h, err := netns.GetFromName(namespace)
		if err == nil {
			err = netns.Set(h)
			h.Close()
		}
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

func (p *pod) serve() error {
	err := inNetns(p.netns(), func() (err error) {
		p.server, err = net.Listen("tcp", net.JoinHostPort("", podPort))
		return err
	})
	if err != nil {
		return err
	}
	go func(server net.Listener, name string) {
		for {
			c, err := server.Accept()
			if err != nil {
				return // dropPod has closed the listener
			}
			fmt.Fprint(c, name)
			c.Close()
		}
	}(p.server, p.name)
	return nil
}

// checkReachable connects to each address of a pod from the current network namespace, and wants the
// pod's name in the response.
func checkReachable(ctx context.Context, name string, ips []netip.Addr) error {
	for _, ip := range ips {
		answer, err := readAll(ctx, net.JoinHostPort(ip.String(), podPort))
		if err != nil {
			return fmt.Errorf("pod %s is not reachable at %s: %w", name, ip, err)
		}
		if answer != name {
			return fmt.Errorf("the server at %s of pod %s is %q", ip, name, answer)
		}
	}
	return nil
}

func readAll(ctx context.Context, address string) (string, error) {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}

func (p *pod) checkReachableFrom(ctx context.Context, other *pod) error {
	err := inNetns(other.netns(), func() error { return checkReachable(ctx, p.name, p.ips) })
	if err != nil {
		return fmt.Errorf("from pod %s: %w", other.name, err)
	}
	return nil
}

func checkPodsReachable(t *testing.T, pods ...*pod) {
	t.Helper()
	for _, p := range pods {
		cluster.MustEventually(t, "node to "+p.name, time.Minute, func() error { return checkReachable(t.Context(), p.name, p.ips) })
	}
}

// checkConnectivity connects from the node to the pods, from pod to pod, and from the node to the
// addresses of the health endpoint, as cilium-health on other nodes does.
func checkConnectivity(t *testing.T, health []netip.Addr, pods []*pod) {
	t.Helper()
	checkPodsReachable(t, pods...)
	for n, p := range pods {
		next := pods[(n+1)%len(pods)]
		cluster.MustEventually(t, p.name+" to "+next.name, time.Minute, func() error { return next.checkReachableFrom(t.Context(), p) })
	}
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, ip := range health {
		cluster.MustEventually(t, "node to health", time.Minute, func() error {
			response, err := client.Get("http://" + net.JoinHostPort(ip.String(), healthPort) + "/hello")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("the health endpoint answered %s", response.Status)
			}
			return nil
		})
	}
}
