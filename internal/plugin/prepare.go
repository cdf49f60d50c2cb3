package plugin

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// input is what a call is made with. env has the CNI variables, args is CNI_ARGS among them.
type input struct {
	binary, args string
	env          []string
	stdin        []byte
}

// prepare returns the input of a call: its invocation, and what belongs to this call alone. An error
// means that the plugin must not be started.
func (r *Runner) prepare(verb string, inv call.Invocation) (input, error) {
	if verb == call.VerbDel {
		// A time limit that was raised since the ADD.
		if err := inv.Profile.CheckTimeout(r.opts.Timeout); err != nil {
			return input{}, err
		}
	}
	extra := map[string]json.RawMessage{}
	if err := addPrevResult(extra, verb, inv); err != nil {
		return input{}, err
	}
	args, err := addRequest(extra, verb, inv)
	if err != nil {
		return input{}, err
	}
	// A pod's identity has the sandbox of the call, as from the kubelet's runtimes. It is not part of the
	// invocation, because the container ID may get a generation after that was made.
	if strings.Contains(inv.Args, argPodName) && !strings.Contains(inv.Args, argSandboxID) && inv.ContainerID != "" {
		args = appendArg(args, argSandboxID+inv.ContainerID)
	}
	stdin := []byte(inv.Config)
	if len(extra) > 0 {
		if stdin, err = withKeys(inv.Config, extra); err != nil {
			return input{}, err
		}
	}
	if verb == call.VerbAdd && len(inv.AddOnly) > 0 {
		if stdin, err = withRuntimeConfig(stdin, inv.AddOnly); err != nil {
			return input{}, err
		}
	}
	return input{inv.Binary, args, cniEnv(verb, inv, args), stdin}, nil
}

// prepareCurrent is prepare with the executable to use now.
func (r *Runner) prepareCurrent(verb string, inv call.Invocation) (input, error) {
	inv, err := r.withExecutable(inv)
	if err != nil {
		return input{}, err
	}
	return r.prepare(verb, inv)
}

// addPrevResult adds the result of the ADD, in the CNI version of the invocation, for a verb that takes
// it: CHECK must and DEL should have it, both since 0.4.0 (CNI spec section 2).
func addPrevResult(extra map[string]json.RawMessage, verb string, inv call.Invocation) error {
	if len(inv.PrevResult) == 0 || verb != call.VerbCheck && verb != call.VerbDel || !inv.AtLeast("0.4.0") {
		return nil
	}
	prev, err := resultAs(inv.PrevResult, inv.CNIVersion)
	switch {
	case err == nil:
		extra["prevResult"] = prev
	case verb == call.VerbCheck:
		return fmt.Errorf("prevResult: %w", err)
	}
	// DEL may go without it (CNI spec section 2, "DEL"), and otherwise the address could never be released.
	return nil
}

// addRequest adds the requested addresses to extra or to CNI_ARGS, which it returns. DEL and CHECK
// carry a request as the ADD did, because the CNI spec wants the same parameters (section 2, "DEL",
// "CHECK"). Where no convention can carry it, only ADD fails.
func addRequest(extra map[string]json.RawMessage, verb string, inv call.Invocation) (args string, err error) {
	if len(inv.Requested) == 0 {
		return inv.Args, nil
	}
	convention, err := inv.Convention(len(inv.Requested))
	if err != nil && verb == call.VerbAdd {
		return "", fmt.Errorf("no way to request %s: %w", inv.Requested, err)
	}
	var ips []string
	for _, p := range inv.Requested {
		ips = append(ips, formatIP(inv.Profile, p))
	}
	list, err := json.Marshal(ips)
	switch convention { // CNI CONVENTIONS.md
	case profile.RequestCNIArgs:
		return appendArg(inv.Args, "IP="+ips[0]), nil
	case profile.RequestRuntimeConfig:
		extra["runtimeConfig"] = fmt.Appendf(nil, `{"ips":%s}`, list)
	case profile.RequestArgsCNI:
		extra["args"] = list // withKeys completes it
	}
	return inv.Args, err
}

// formatIP returns a requested address in the form that the plugin reads: static wants CIDR
// notation, host-local accepts the bare address. An IPv4-mapped IPv6 address becomes the IPv4 one.
func formatIP(plugin profile.Profile, p netip.Prefix) string {
	if p.Addr().Is4In6() {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if plugin.RequestForm == profile.FormCIDR {
		return p.String()
	}
	return p.Addr().String()
}

func appendArg(args, arg string) string {
	if args == "" {
		return arg
	}
	return args + ";" + arg
}

// withKeys returns a network configuration with the keys of one call added. The key args has the
// requested addresses alone.
func withKeys(config []byte, extra map[string]json.RawMessage) ([]byte, error) {
	var object map[string]json.RawMessage
	err := json.Unmarshal(config, &object)
	if err != nil {
		return nil, fmt.Errorf("recorded network configuration: %w", err)
	}
	for key, value := range extra {
		if key == "args" {
			if value, err = withRequestedIPs(object[key], value); err != nil {
				return nil, err
			}
		}
		object = withKey(object, key, value)
	}
	return json.Marshal(object)
}

// withRuntimeConfig returns a network configuration with keys of runtimeConfig added.
func withRuntimeConfig(config []byte, keys map[string]json.RawMessage) ([]byte, error) {
	var object, runtimeConfig map[string]json.RawMessage
	err := json.Unmarshal(config, &object)
	if raw, ok := object[call.KeyRuntimeConfig]; ok && err == nil {
		err = json.Unmarshal(raw, &runtimeConfig)
	}
	if err != nil {
		return nil, fmt.Errorf("runtimeConfig: %w", err)
	}
	for key, value := range keys {
		runtimeConfig = withKey(runtimeConfig, key, value)
	}
	raw, err := json.Marshal(runtimeConfig)
	if err != nil {
		return nil, err
	}
	return json.Marshal(withKey(object, call.KeyRuntimeConfig, raw))
}

// withRequestedIPs returns args with its cni.ips set, or without it if ips is nil, and the rest unchanged.
func withRequestedIPs(args, ips json.RawMessage) (json.RawMessage, error) {
	var outer, cni map[string]json.RawMessage
	if args != nil {
		if err := json.Unmarshal(args, &outer); err != nil {
			return nil, fmt.Errorf("args: %w; expected an object", err)
		}
	}
	if raw, ok := outer["cni"]; ok {
		if err := json.Unmarshal(raw, &cni); err != nil {
			return nil, fmt.Errorf("args.cni: %w; expected an object", err)
		}
	}
	if _, ok := cni["ips"]; !ok && ips == nil {
		return args, nil
	}
	delete(cni, "ips")
	if ips != nil {
		cni = withKey(cni, "ips", ips)
	}
	raw, err := json.Marshal(cni)
	if err != nil {
		return nil, err
	}
	return json.Marshal(withKey(outer, "cni", raw))
}

// withKey sets a key of an object, which may be nil.
func withKey(object map[string]json.RawMessage, key string, value json.RawMessage) map[string]json.RawMessage {
	if object == nil {
		object = map[string]json.RawMessage{}
	}
	object[key] = value
	return object
}
