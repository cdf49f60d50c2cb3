package whereabouts

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// invocation is one execution of the plugin.
type invocation struct {
	verb, containerID, ifName string
	// args is CNI_ARGS.
	args string
	// subnets are the ranges of its configuration; empty for ipv4Range.
	subnets []string
	// node is the name of the node; empty if the plugin needs none.
	node string
	// ipam overrides keys of the ipam section; nil deletes one.
	ipam map[string]any
}

const (
	podA = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a"
	podB = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=b"
)

// add is an ADD of a pod's eth0.
func add(containerID, args string) invocation {
	return invocation{verb: "ADD", containerID: containerID, ifName: "eth0", args: args}
}

// del is a DEL of a pod's eth0.
func del(containerID, args string) invocation {
	return invocation{verb: "DEL", containerID: containerID, ifName: "eth0", args: args}
}

// run executes the plugin and returns the addresses of its result, with prefix lengths, or its
// error.
func (ns *namespace) run(t *testing.T, i invocation) (ips []string, failure error) {
	t.Helper()
	if i.subnets == nil {
		i.subnets = []string{ipv4Range}
	}
	ipam := ns.ipam(i.subnets...)
	for key, value := range i.ipam {
		if ipam[key] = value; value == nil {
			delete(ipam, key)
		}
	}
	bin := filepath.Join(ns.built, "bin")
	cmd := exec.Command(filepath.Join(bin, "whereabouts"))
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"CNI_COMMAND=" + i.verb, "CNI_CONTAINERID=" + i.containerID, "CNI_IFNAME=" + i.ifName,
		"CNI_ARGS=" + i.args, "CNI_NETNS=/run/netns/does-not-exist", "CNI_PATH=" + bin, "NODENAME=" + i.node,
	}
	cmd.Stdin = bytes.NewReader(asJSON(t, map[string]any{"cniVersion": "1.1.0", "name": networkName, "type": "cilium-cni", "ipam": ipam}))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var result struct {
		Msg, Details string
		IPs          []struct{ Address string }
	}
	if len(out) > 0 {
		if err := json.Unmarshal(out, &result); err != nil {
			t.Fatalf("%s printed %q: %v", i.verb, out, err)
		}
	}
	if exit != nil {
		return nil, errors.New(strings.TrimSpace(result.Msg + " " + result.Details))
	}
	for _, ip := range result.IPs {
		ips = append(ips, ip.Address)
	}
	return ips, nil
}

// mustRun wants the plugin to succeed with exactly these addresses.
func (ns *namespace) mustRun(t *testing.T, i invocation, want ...string) {
	t.Helper()
	got, err := ns.run(t, i)
	harness.Must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("%s returned %q; want %q", i.verb, got, want)
	}
}

// mustFail wants the plugin to fail with an error that contains the text.
func (ns *namespace) mustFail(t *testing.T, i invocation, text string) {
	t.Helper()
	if ips, err := ns.run(t, i); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s returned %q and the error %v; want an error with %q", i.verb, ips, err, text)
	}
}
