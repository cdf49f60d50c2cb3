package plugin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// prepare finds the executable of the call, and returns its CNI_ARGS and standard input.
func (x *execution) prepare(c *call.Call) (args string, stdin []byte, err error) {
	if x.verb == call.VerbDel {
		// A time limit that was raised since the ADD.
		if err := c.Invocation.Profile.CheckTimeout(x.runner.opts.Timeout); err != nil {
			return "", nil, err
		}
	}
	if c.Invocation, err = x.runner.withExecutable(c.Invocation); err != nil {
		return "", nil, err
	}
	return x.runner.prepare(x.verb, *c)
}

// prepare returns CNI_ARGS and standard input of a call: those of the invocation, and what belongs
// to this call alone. An error means that the plugin must not be started.
func (r *Runner) prepare(verb string, c call.Call) (args string, stdin []byte, err error) {
	prev, err := r.prevResults.forCall(verb, c)
	if err != nil {
		return "", nil, err
	}
	extra := map[string]json.RawMessage{}
	args, err = addRequest(extra, verb, c)
	args = withPodSandbox(args, c)
	if err != nil || len(extra) == 0 && prev == nil {
		return args, c.Invocation.Config, err
	}
	if len(extra) == 0 {
		if stdin, ok := appendPrevResult(c.Invocation.Config, prev); ok {
			return args, stdin, nil
		}
	}
	if prev != nil {
		extra["prevResult"] = prev
	}
	stdin, err = withKeys(c.Invocation.Config, extra)
	return args, stdin, err
}

// addRequest adds the requested addresses to extra or to CNI_ARGS, which it returns. DEL and CHECK
// carry a request as the ADD did, because the CNI spec wants the same parameters (section 2, "DEL",
// "CHECK"). Where no convention can carry it, only ADD fails.
func addRequest(extra map[string]json.RawMessage, verb string, c call.Call) (args string, err error) {
	args = c.Invocation.Args
	if len(c.Requested) == 0 {
		return args, nil
	}
	convention, noneErr := c.Invocation.Convention(len(c.Requested))
	switch {
	case noneErr != nil && verb == call.VerbAdd:
		return "", fmt.Errorf("no way to request %s: %w", c.Requested, noneErr)
	case convention == profile.RequestCNIArgs:
		args = appendArg(args, "IP="+formatIP(c, c.Requested[0]))
	case convention == profile.RequestRuntimeConfig:
		extra["runtimeConfig"], err = ipsJSON(c)
	case convention == profile.RequestArgsCNI:
		extra["args"], err = ipsJSON(c)
	}
	return args, err
}

// withPodSandbox adds the sandbox of the call to a pod's identity, as the kubelet's runtimes do. It
// is not part of the invocation, because the container ID may get a generation after that was made.
func withPodSandbox(args string, c call.Call) string {
	if !strings.Contains(c.Invocation.Args, argPodName) || c.ContainerID == "" {
		return args
	}
	return appendArg(args, "K8S_POD_INFRA_CONTAINER_ID="+c.ContainerID)
}

func appendArg(args, arg string) string {
	if args == "" {
		return arg
	}
	return args + ";" + arg
}

// ipsJSON returns {"ips": [...]} of the requested addresses (CNI CONVENTIONS.md).
func ipsJSON(c call.Call) (json.RawMessage, error) {
	ips := make([]string, len(c.Requested))
	for i, p := range c.Requested {
		ips[i] = formatIP(c, p)
	}
	return json.Marshal(map[string][]string{"ips": ips})
}

// formatIP returns a requested address in the form that the plugin reads: static wants CIDR
// notation, host-local accepts the bare address. An IPv4-mapped IPv6 address becomes the IPv4 one.
func formatIP(c call.Call, p netip.Prefix) string {
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if c.Invocation.Profile.RequestForm == profile.FormCIDR {
		return p.String()
	}
	return p.Addr().String()
}

// withKeys returns a network configuration with the keys of one call added.
func withKeys(config []byte, extra map[string]json.RawMessage) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(config, &object); err != nil {
		return nil, fmt.Errorf("recorded network configuration: %w", err)
	}
	if request, ok := extra["args"]; ok {
		args, err := setRequestedIPs(object["args"], request)
		if err != nil {
			return nil, err
		}
		extra["args"] = args
	}
	maps.Copy(object, extra)
	return json.Marshal(object)
}
