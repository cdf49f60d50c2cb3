package delegate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// prepare returns CNI_ARGS and stdin of a call: the context's, and what belongs
// to this call alone. An error means that the plugin must not be started.
func (r *Runner) prepare(verb string, c call.Call) (args string, stdin []byte, err error) {
	prev, err := r.prevResults.of(verb, c)
	if err != nil {
		return "", nil, err
	}
	extra := map[string]json.RawMessage{}
	args, err = addRequest(extra, verb, c)
	args = withSandbox(args, c)
	if err != nil || len(extra) == 0 && prev == nil {
		return args, c.Invocation.Config, err
	}
	if len(extra) == 0 {
		if stdin, ok := withPrevResult(c.Invocation.Config, prev); ok {
			return args, stdin, nil
		}
	}
	if prev != nil {
		extra["prevResult"] = prev
	}
	stdin, err = extend(c.Invocation.Config, extra)
	return args, stdin, err
}

// addRequest adds the addresses asked for, and returns CNI_ARGS. DEL and CHECK
// carry a request as the ADD did, because the CNI spec wants the same
// parameters again (section 2, "DEL", "CHECK"); without a way to, only ADD fails.
func addRequest(extra map[string]json.RawMessage, verb string, c call.Call) (args string, err error) {
	args = c.Invocation.Args
	if len(c.Requested) == 0 {
		return args, nil
	}
	convention, wrong := c.Invocation.Convention(len(c.Requested))
	switch {
	case wrong != nil && verb == call.VerbAdd:
		return "", fmt.Errorf("it cannot be asked for %s: %w", c.Requested, wrong)
	case convention == profile.RequestCNIArgs:
		args = withArg(args, "IP="+written(c, c.Requested[0]))
	case convention == profile.RequestRuntimeConfig:
		extra["runtimeConfig"], err = ipsObject(c)
	case convention == profile.RequestArgsCNI:
		extra["args"], err = ipsObject(c)
	}
	return args, err
}

// withSandbox completes a pod's identity by the sandbox of the call, as kubelet's
// runtimes do. It is not part of the context, because an ID that a DEL has
// spent gets a generation after the context was made.
func withSandbox(args string, c call.Call) string {
	if !strings.Contains(c.Invocation.Args, argPodName) || c.ContainerID == "" {
		return args
	}
	return withArg(args, "K8S_POD_INFRA_CONTAINER_ID="+c.ContainerID)
}

func withArg(args, arg string) string {
	if args == "" {
		return arg
	}
	return args + ";" + arg
}

// ipsObject is {"ips": [...]}, as CONVENTIONS.md has it.
func ipsObject(c call.Call) (json.RawMessage, error) {
	ips := make([]string, len(c.Requested))
	for i, p := range c.Requested {
		ips[i] = written(c, p)
	}
	return json.Marshal(map[string][]string{"ips": ips})
}

// written is a requested address in the form that the plugin reads: static
// wants CIDR notation, host-local takes the bare address too. A 4-in-6 address
// is written as the IPv4 address that it means.
func written(c call.Call, p netip.Prefix) string {
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if c.Invocation.Profile.RequestForm == profile.FormCIDR {
		return p.String()
	}
	return p.Addr().String()
}

// extend returns a configuration with the keys of one call added.
func extend(config []byte, extra map[string]json.RawMessage) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(config, &object); err != nil {
		return nil, fmt.Errorf("recorded network configuration: %w", err)
	}
	if ips, ok := extra["args"]; ok {
		args, err := withRequest(object["args"], ips)
		if err != nil {
			return nil, err
		}
		extra["args"] = args
	}
	for key, value := range extra {
		object[key] = value
	}
	return json.Marshal(object)
}
