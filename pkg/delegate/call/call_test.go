package call

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// known returns the embedded profile of a plugin type.
func known(t *testing.T, pluginType string) profile.Profile {
	t.Helper()
	set, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	return set.For(pluginType)
}

// Trap: host-local's errors are all code 999. Whoever took the code alone for a no
// would give up live addresses.
func TestOnlyAPlainNoOfCheckMeansLost(t *testing.T) {
	no := Error{Verb: VerbCheck, Outcome: Refused, Code: 999, Msg: "host-local: Failed to find address added by container x"}
	with := func(change func(*Error)) error {
		e := no
		change(&e)
		return &e
	}
	for name, c := range map[string]struct {
		pluginType string
		err        error
		want       bool
	}{
		"host-local's no":                        {"host-local", &no, true},
		"host-local's no, wrapped":               {"host-local", fmt.Errorf("verify: %w", &no), true},
		"host-local's no in the details":         {"host-local", with(func(e *Error) { e.Details, e.Msg = e.Msg, "" }), true},
		"another error of host-local":            {"host-local", with(func(e *Error) { e.Msg = "permission denied" }), false},
		"host-local's words under another code":  {"host-local", with(func(e *Error) { e.Code = 100 }), false},
		"any code from 100 of an unknown plugin": {"mystery", with(func(e *Error) { e.Code, e.Msg = 100, "no" }), true},
		"code 99 of an unknown plugin":           {"mystery", with(func(e *Error) { e.Code = 99 }), false},
		"an unfit environment (4)":               {"mystery", with(func(e *Error) { e.Code = 4 }), false},
		"an unfit configuration (7)":             {"mystery", with(func(e *Error) { e.Code = 7 }), false},
		"try again later (11)":                   {"mystery", with(func(e *Error) { e.Code = 11 }), false},
		"plugin not available (50)":              {"mystery", with(func(e *Error) { e.Code = 50 }), false},
		"no code":                                {"mystery", with(func(e *Error) { e.Code = 0 }), false},
		"an unknown end":                         {"host-local", with(func(e *Error) { e.Outcome = Unknown }), false},
		"a plugin that did not start":            {"host-local", with(func(e *Error) { e.Outcome = NotStarted }), false},
		"a DEL that was refused":                 {"host-local", with(func(e *Error) { e.Verb = VerbDel }), false},
		"an error of another kind":               {"host-local", errors.New("Failed to find address"), false},
		"no error":                               {"host-local", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Lost(Invocation{Profile: known(t, c.pluginType)}, c.err); got != c.want {
				t.Errorf("got lost %v of %v, want %v", got, c.err, c.want)
			}
		})
	}
}

func TestNoProfileCanMakeCNIsOwnCodesMeanLost(t *testing.T) {
	eager := profile.Profile{Lost: profile.Lost{Codes: []uint{7, 11, 50}}}
	for _, code := range eager.Lost.Codes {
		if Lost(Invocation{Profile: eager}, &Error{Verb: VerbCheck, Outcome: Refused, Code: code}) {
			t.Errorf("code %d means lost, want it to mean that the plugin could not be asked", code)
		}
	}
}

func TestTheFirstConventionThatCarriesAllAddressesIsChosen(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("fd00::9")
	for name, c := range map[string]struct {
		honoured     []profile.Request
		capabilities []string
		addrs        []netip.Addr
		want         profile.Request
	}{
		"the first of several":                {[]profile.Request{profile.RequestArgsCNI, profile.RequestCNIArgs}, nil, []netip.Addr{v4}, profile.RequestArgsCNI},
		"CNI_ARGS for one address":            {[]profile.Request{profile.RequestCNIArgs, profile.RequestArgsCNI}, nil, []netip.Addr{v4}, profile.RequestCNIArgs},
		"not CNI_ARGS for two":                {[]profile.Request{profile.RequestCNIArgs, profile.RequestArgsCNI}, nil, []netip.Addr{v4, v6}, profile.RequestArgsCNI},
		"runtimeConfig with the capability":   {[]profile.Request{profile.RequestRuntimeConfig, profile.RequestArgsCNI}, []string{"ips"}, []netip.Addr{v4}, profile.RequestRuntimeConfig},
		"not runtimeConfig without it":        {[]profile.Request{profile.RequestRuntimeConfig, profile.RequestArgsCNI}, []string{"mac"}, []netip.Addr{v4}, profile.RequestArgsCNI},
		"none where the profile honours none": {nil, []string{"ips"}, []netip.Addr{v4}, ""},
		"none where CNI_ARGS is all there is": {[]profile.Request{profile.RequestCNIArgs}, nil, []netip.Addr{v4, v6}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			context := Invocation{Capabilities: c.capabilities, Profile: profile.Profile{Requests: c.honoured}}
			got, err := context.Convention(len(c.addrs))
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestVerbsNeedTheirVersion(t *testing.T) {
	for version, c := range map[string]struct{ check, status bool }{
		"0.3.1": {false, false}, "0.4.0": {true, false}, "1.0.0": {true, false}, "1.1.0": {true, true}, "nonsense": {false, false},
	} {
		got := Invocation{CNIVersion: version}
		if got.HasCheck() != c.check || got.HasStatus() != c.status {
			t.Errorf("%s: got CHECK %v and STATUS %v, want %v and %v", version, got.HasCheck(), got.HasStatus(), c.check, c.status)
		}
	}
	if (Invocation{CNIVersion: "1.1.0", DisableCheck: true}).HasCheck() {
		t.Error("got CHECK where the network forbids it")
	}
}

func TestContextsAreEqualIfTheyAddressThePluginAlike(t *testing.T) {
	one := Invocation{Network: "net", CNIVersion: "1.1.0", Config: json.RawMessage(`{"name":"net"}`)}
	same, other := one, one
	same.Config = json.RawMessage(`{ "name": "net" }`)
	same.PrevResult, same.AddActsUntil = json.RawMessage(`{}`), time.Unix(1, 0)
	other.Binary = "/elsewhere"
	if !one.Equal(same) {
		t.Error("two contexts differ by white space or by what the plugin answered or may still do, want them equal")
	}
	if one.Equal(other) {
		t.Error("two contexts with different binaries are equal")
	}
	if none := (Invocation{}); !none.Equal(none) {
		t.Error("a context without a configuration is not equal to itself")
	}
	broken := Invocation{Config: json.RawMessage(`{`)}
	if broken.Equal(broken) {
		t.Error("a context without a valid configuration is equal to something")
	}
}

func TestAnErrorNamesWhatItKnows(t *testing.T) {
	cause := errors.New("it was killed")
	for name, c := range map[string]struct {
		err  Error
		want string
	}{
		"a refusal":      {Error{Outcome: Refused, Code: 100, Msg: "no", Details: "none left"}, "refused (code 100): no; none left"},
		"no start":       {Error{Outcome: NotStarted, Err: cause}, "did not start: it was killed"},
		"an unknown end": {Error{Outcome: Unknown, Err: cause, Msg: "no", Stderr: "panic"}, "ended with an unknown outcome: it was killed: no (stderr: panic)"},
	} {
		t.Run(name, func(t *testing.T) {
			c.err.Verb, c.err.Plugin, c.err.ContainerID = VerbDel, "host-local", "id"
			got := c.err.Error()
			if !strings.HasPrefix(got, "plugin host-local DEL of container ID id ") || !strings.HasSuffix(got, c.want) {
				t.Errorf("got %q, want verb, plugin, container ID and %q", got, c.want)
			}
			if c.err.Err != nil && !errors.Is(&c.err, cause) {
				t.Error("the cause cannot be found by errors.Is")
			}
		})
	}
}
