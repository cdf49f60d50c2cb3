package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	podNamespace = "default"
	// agentsNetConf is the configuration of cilium-cni if the agent allocates the addresses.
	agentsNetConf = `{"cniVersion":"1.0.0","name":"cilium","type":"cilium-cni","log-file":"/run/cilium/cilium-cni.log"}`
)

// pod is a network namespace with the interface of cilium-cni, and a server.
type pod struct {
	name string
	// sandbox is CNI_CONTAINERID, a new one for each attempt, as by the kubelet.
	sandbox string
	// attempts counts the sandboxes.
	attempts int
	ips      []netip.Addr
	server   net.Listener
}

func (p *pod) netns() string { return fmt.Sprintf("%s-%d", p.name, p.attempts) }

// addPod tries once to start a pod. After a failure dropPod must delete the sandbox.
func (tb *testbed) addPod(ctx context.Context, p *pod) error {
	uid, err := tb.kube.createPod(ctx, p.name)
	if err != nil {
		return err
	}
	if err := p.newSandbox(); err != nil {
		return err
	}
	return tb.attachPod(ctx, p, uid)
}

// newSandbox creates the network namespace of the next attempt.
func (p *pod) newSandbox() error {
	p.attempts++
	p.sandbox = fmt.Sprintf("%x", sha256.Sum256([]byte(p.netns()))) // cilium-cni derives interface names from it
	if err := command("ip netns add " + p.netns()); err != nil {
		return err
	}
	return command("ip -n " + p.netns() + " link set lo up")
}

// attachPod calls ADD for a pod with a sandbox, and starts its server.
func (tb *testbed) attachPod(ctx context.Context, p *pod, uid string) error {
	out, err := tb.cni(ctx, "ADD", p, uid)
	if err != nil {
		return err
	}
	if p.ips, err = addressesOf(out); err != nil {
		return err
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
	if err := command("ip netns del " + p.netns()); err != nil {
		return err
	}
	p.sandbox, p.ips = "", nil
	return nil
}

// cni calls cilium-cni, or the chain that has it, as a container runtime does.
func (tb *testbed) cni(ctx context.Context, verb string, p *pod, uid string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if tb.chain != "" {
		return tb.callChain(ctx, verb, p, uid)
	}
	cmd := exec.CommandContext(ctx, tb.bin("cilium-cni"))
	cmd.Stdin = strings.NewReader(tb.netConf)
	cmd.Env = append(os.Environ(),
		"CILIUM_SOCK="+tb.cniSocket,
		"CNI_COMMAND="+verb,
		"CNI_CONTAINERID="+p.sandbox,
		"CNI_NETNS=/run/netns/"+p.netns(),
		"CNI_IFNAME=eth0",
		"CNI_PATH="+tb.binDir()+":"+tb.pluginDir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE="+podNamespace+";K8S_POD_NAME="+p.name+
			";K8S_POD_INFRA_CONTAINER_ID="+p.sandbox+";K8S_POD_UID="+uid,
	)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cilium-cni %s %s: %w: %s%s", verb, p.netns(), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

func addressesOf(result []byte) ([]netip.Addr, error) {
	var r struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, errors.Join(fmt.Errorf("cilium-cni printed %q", result), err)
	}
	var ips []netip.Addr
	for _, ip := range r.IPs {
		ips = append(ips, ip.Address.Addr())
	}
	return ips, nil
}
