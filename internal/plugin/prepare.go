package plugin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
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
	stdin, err := addPrevResult(inv.Config, verb, inv)
	if err != nil {
		return input{}, err
	}
	stdin, args, err := addRequest(stdin, verb, inv)
	if err != nil {
		return input{}, err
	}
	// A pod's identity has the sandbox of the call, as from the kubelet's runtimes. It is not part of the
	// invocation, because the container ID may get a generation after that was made.
	if strings.Contains(inv.Args, argPodName) && !strings.Contains(inv.Args, argSandboxID) && inv.ContainerID != "" {
		args = appendArg(args, argSandboxID+inv.ContainerID)
	}
	if verb == call.VerbAdd {
		for key, value := range inv.AddOnly {
			if stdin, err = setKey(stdin, value, call.KeyRuntimeConfig, key); err != nil {
				return input{}, err
			}
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
func addPrevResult(config json.RawMessage, verb string, inv call.Invocation) (json.RawMessage, error) {
	if len(inv.PrevResult) == 0 || verb != call.VerbCheck && verb != call.VerbDel || !inv.AtLeast("0.4.0") {
		return config, nil
	}
	prev, err := resultAs(inv.PrevResult, inv.CNIVersion)
	switch {
	case err == nil:
		return setKey(config, prev, "prevResult")
	case verb == call.VerbCheck:
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	// DEL may go without it (CNI spec section 2, "DEL"), and otherwise the address could never be released.
	return config, nil
}

// addRequest adds the requested addresses to the configuration or to CNI_ARGS. DEL and CHECK carry a request as the ADD
// did, because the CNI spec wants the same parameters (section 2, "DEL", "CHECK"). Where no convention can carry it, only
// ADD fails.
func addRequest(config json.RawMessage, verb string, inv call.Invocation) (with json.RawMessage, args string, err error) {
	if len(inv.Requested) == 0 {
		return config, inv.Args, nil
	}
	convention, err := inv.Convention(len(inv.Requested))
	if err != nil && verb == call.VerbAdd {
		return nil, "", fmt.Errorf("no way to request %s: %w", inv.Requested, err)
	}
	var ips []string
	for _, p := range inv.Requested {
		ips = append(ips, formatIP(inv.Profile, p))
	}
	list, err := json.Marshal(ips)
	if err != nil {
		return nil, "", err
	}
	switch convention { // CNI CONVENTIONS.md
	case profile.RequestCNIArgs:
		return config, appendArg(inv.Args, "IP="+ips[0]), nil
	case profile.RequestRuntimeConfig:
		config, err = setKey(config, list, call.KeyRuntimeConfig, "ips")
	case profile.RequestArgsCNI:
		config, err = setKey(config, list, call.KeyArgs, "cni", "ips")
	}
	return config, inv.Args, err
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

// setKey sets the value at a path of nested objects in a network configuration of a record. Objects are made where they
// are missing. A nil value removes the key.
func setKey(config, value json.RawMessage, path ...string) (json.RawMessage, error) {
	objects, inner := make([]map[string]json.RawMessage, len(path)), config
	for i, key := range path {
		if inner == nil && value == nil {
			return config, nil
		}
		if inner != nil {
			if err := json.Unmarshal(inner, &objects[i]); err != nil {
				return nil, fmt.Errorf("%s: %w; expected an object", cmp.Or(strings.Join(path[:i], "."), "recorded network configuration"), err)
			}
		}
		inner = objects[i][key]
	}
	for i, key := range slices.Backward(path) {
		if objects[i] == nil {
			objects[i] = map[string]json.RawMessage{}
		}
		if objects[i][key] = value; value == nil {
			delete(objects[i], key)
		}
		var err error
		if value, err = json.Marshal(objects[i]); err != nil {
			return nil, err
		}
	}
	return value, nil
}
