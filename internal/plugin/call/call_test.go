package call

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Trap: host-local's errors are all code 999. If the code alone meant lost, live addresses would be
// given up.
func TestIsLost(t *testing.T) {
	notHeld := Error{Verb: VerbCheck, Outcome: Refused, Code: 999, Msg: "host-local: Failed to find address added by container x"}
	with := func(change func(*Error)) error {
		e := notHeld
		change(&e)
		return &e
	}
	set, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pluginType string
		err        error
		want       bool
	}{
		"host-local":          {"host-local", &notHeld, true},
		"host-local, wrapped": {"host-local", fmt.Errorf("verify: %w", &notHeld), true},
		"unknown plugin":      {"mystery", &notHeld, false}, // 999 may be an outage, too
		"unknown outcome":     {"host-local", with(func(e *Error) { e.Outcome = Unknown }), false},
		"not started":         {"host-local", with(func(e *Error) { e.Outcome = NotStarted }), false},
		"refused DEL":         {"host-local", with(func(e *Error) { e.Verb = VerbDel }), false},
		"not a call.Error":    {"host-local", errors.New("Failed to find address"), false},
		"no error":            {"host-local", nil, false},
	} {
		if got := IsLost(Invocation{Profile: set.For(c.pluginType)}, c.err); got != c.want {
			t.Errorf("%s: got lost %v of %v, want %v", name, got, c.err, c.want)
		}
	}
}

func TestCNICodesAreNotLost(t *testing.T) {
	wrong := profile.Profile{Lost: profile.Lost{Codes: []uint{4, 7, 11, 50}}}
	for _, code := range wrong.Lost.Codes {
		if IsLost(Invocation{Profile: wrong}, &Error{Verb: VerbCheck, Outcome: Refused, Code: code}) {
			t.Errorf("code %d means lost, want a failed check", code)
		}
	}
}

func TestConvention(t *testing.T) {
	for name, c := range map[string]struct {
		honoured     []profile.Request
		capabilities []string
		addrs        int
		want         profile.Request
	}{
		"first of several":              {[]profile.Request{profile.RequestArgsCNI, profile.RequestCNIArgs}, nil, 1, profile.RequestArgsCNI},
		"CNI_ARGS for one":              {[]profile.Request{profile.RequestCNIArgs, profile.RequestArgsCNI}, nil, 1, profile.RequestCNIArgs},
		"not CNI_ARGS for two":          {[]profile.Request{profile.RequestCNIArgs, profile.RequestArgsCNI}, nil, 2, profile.RequestArgsCNI},
		"runtimeConfig with capability": {[]profile.Request{profile.RequestRuntimeConfig, profile.RequestArgsCNI}, []string{"ips"}, 1, profile.RequestRuntimeConfig},
		"not runtimeConfig without":     {[]profile.Request{profile.RequestRuntimeConfig, profile.RequestArgsCNI}, []string{"mac"}, 1, profile.RequestArgsCNI},
		"profile honours none":          {nil, []string{"ips"}, 1, ""},
		"only CNI_ARGS for two":         {[]profile.Request{profile.RequestCNIArgs}, nil, 2, ""},
	} {
		inv := Invocation{Capabilities: c.capabilities, Profile: profile.Profile{Requests: c.honoured}}
		got, err := inv.Convention(c.addrs)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestVerbVersions(t *testing.T) {
	for version, c := range map[string]struct{ check, status bool }{
		"0.3.1": {false, false}, "0.4.0": {true, false}, "1.0.0": {true, false}, "1.1.0": {true, true}, "nonsense": {false, false},
	} {
		got := Invocation{CNIVersion: version}
		if got.HasCheck() != c.check || got.HasStatus() != c.status || got.HasGC() != c.status {
			t.Errorf("%s: got CHECK %v, STATUS %v and GC %v, want %v, %v and the same", version, got.HasCheck(), got.HasStatus(), got.HasGC(), c.check, c.status)
		}
	}
	if (Invocation{CNIVersion: "1.1.0", DisableCheck: true}).HasCheck() {
		t.Error("got CHECK where the network forbids it")
	}
}

func TestInvocationEqual(t *testing.T) {
	one := Invocation{Network: "net", CNIVersion: "1.1.0", Config: json.RawMessage(`{"name":"net"}`)}
	same, other := one, one
	same.Config = json.RawMessage(`{ "name": "net" }`)
	same.PrevResult, same.AddActsUntil = json.RawMessage(`{}`), time.Unix(1, 0)
	other.Binary = "/elsewhere"
	if !one.Equal(same) {
		t.Error("two invocations differ by white space or by what the plugin returned or may still do, want them equal")
	}
	if one.Equal(other) {
		t.Error("two invocations with different binaries are equal")
	}
	if none := (Invocation{}); !none.Equal(none) {
		t.Error("an invocation without a configuration is not equal to itself")
	}
	broken := Invocation{Config: json.RawMessage(`{`)}
	if broken.Equal(broken) {
		t.Error("an invocation with an invalid configuration is equal to another")
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("it was killed")
	for name, c := range map[string]struct {
		err  Error
		want string
	}{
		"refused":     {Error{Outcome: Refused, Code: 100, Msg: "no", Details: "none left"}, "refused (code 100): no; none left"},
		"not started": {Error{Outcome: NotStarted, Err: cause}, "did not start: it was killed"},
		"unknown":     {Error{Outcome: Unknown, Err: cause, Msg: "no", Stderr: "panic"}, "ended with an unknown outcome: it was killed: no (stderr: panic)"},
	} {
		c.err.Verb, c.err.Plugin, c.err.ContainerID = VerbDel, "host-local", "id"
		got := c.err.Error()
		if !strings.HasPrefix(got, "plugin host-local DEL of container ID id ") || !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: got %q, want verb, plugin, container ID and %q", name, got, c.want)
		}
		if c.err.Err != nil && !errors.Is(&c.err, cause) {
			t.Errorf("%s: the cause is not found by errors.Is", name)
		}
	}
}

func TestVerifyBy(t *testing.T) {
	for name, c := range map[string]struct {
		by      profile.Verify
		version string
		want    profile.Verify
	}{
		"CHECK":             {profile.VerifyCheck, "1.0.0", profile.VerifyCheck},
		"CHECK below 0.4.0": {profile.VerifyCheck, "0.3.1", profile.VerifyNothing},
		"ADD below 0.4.0":   {profile.VerifyAdd, "0.3.1", profile.VerifyAdd},
	} {
		inv := Invocation{CNIVersion: c.version, Profile: profile.Profile{VerifyBy: c.by}}
		if got := inv.VerifyBy(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	// Records of earlier builds have it of azure-ipam.
	if got := (Invocation{Profile: profile.Profile{VerifyBy: profile.VerifyAdd, Del: profile.DelQueued}}).VerifyBy(); got != profile.VerifyNothing {
		t.Errorf("by ADD where no ID is used twice: got %q, want %q", got, profile.VerifyNothing)
	}
}
