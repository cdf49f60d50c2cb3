package delegate

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// prepare returns CNI_ARGS and stdin of a call: the context's, and what belongs
// to this call alone. An error means that the plugin must not be started.
func prepare(verb string, c call.Call) (args string, stdin []byte, err error) {
	extra := map[string]json.RawMessage{}
	if err := addPrevResult(extra, verb, c); err != nil {
		return "", nil, err
	}
	args, err = addRequest(extra, verb, c)
	if err != nil || len(extra) == 0 {
		return args, c.Context.Config, err
	}
	stdin, err = extend(c.Context.Config, extra)
	return args, stdin, err
}

// addPrevResult adds the result of the ADD for the verbs that take it.
func addPrevResult(extra map[string]json.RawMessage, verb string, c call.Call) error {
	if len(c.PrevResult) == 0 || !takesPrevResult(verb, c.Context.CNIVersion) {
		return nil
	}
	prev, err := resultAs(c.PrevResult, c.Context.CNIVersion)
	switch {
	case err == nil:
		extra["prevResult"] = prev
	case verb == call.VerbDel:
		// DEL may go without it (CNI spec section 2, "DEL"), and that is better
		// than an address that can never be given back.
	default:
		return fmt.Errorf("prevResult: %w", err)
	}
	return nil
}

// addRequest adds the addresses asked for, and returns CNI_ARGS. DEL and CHECK
// carry a request as the ADD did, because the CNI spec wants the same
// parameters again (section 2, "DEL", "CHECK"); without a way to, only ADD fails.
func addRequest(extra map[string]json.RawMessage, verb string, c call.Call) (args string, err error) {
	args = c.Context.Args
	if len(c.Requested) == 0 {
		return args, nil
	}
	convention, ok := c.Context.Convention(c.Requested)
	switch {
	case !ok && verb == call.VerbAdd:
		return "", fmt.Errorf("it cannot be asked for %s: its profile honours %q, the configuration declares the capabilities %q",
			c.Requested, c.Context.Profile.Requests, c.Context.Capabilities)
	case convention == profile.RequestCNIArgs:
		args = withArg(args, "IP="+c.Requested[0].Unmap().String())
	case convention == profile.RequestRuntimeConfig:
		extra["runtimeConfig"], err = ipsObject(c.Requested)
	case convention == profile.RequestArgsCNI:
		extra["args"], err = ipsObject(c.Requested)
	}
	return args, err
}

// takesPrevResult follows CNI spec section 2: CHECK must and DEL should have
// it, both since 0.4.0.
func takesPrevResult(verb, cniVersion string) bool {
	return (verb == call.VerbCheck || verb == call.VerbDel) && atLeast(cniVersion, "0.4.0")
}

func withArg(args, arg string) string {
	if args == "" {
		return arg
	}
	return args + ";" + arg
}

// ipsObject is {"ips": [...]} in the plain address form, which CONVENTIONS.md
// allows and host-local reads.
func ipsObject(addrs []netip.Addr) (json.RawMessage, error) {
	plain := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		plain[i] = a.Unmap()
	}
	return json.Marshal(map[string][]netip.Addr{"ips": plain})
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
