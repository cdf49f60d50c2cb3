package record

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// dualStack returns a held record of both families.
func dualStack() Record {
	at := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	return Record{
		ContainerID: "cilium-agent-router-0123456789abcdef",
		Owner:       "router",
		Pool:        "default",
		State:       Held,
		Result: call.Result{Addresses: []call.Address{
			{Prefix: netip.MustParsePrefix("10.1.0.7/24"), Gateway: netip.MustParseAddr("10.1.0.1")},
			{Prefix: netip.MustParsePrefix("fd00::7/64")},
			{Prefix: netip.MustParsePrefix("10.1.0.8/24")},
		}},
		Claims:      []Family{IPv4, IPv6},
		Expiration:  &Expiration{UUID: "u", Deadline: at},
		Invocations: []call.Invocation{{Network: "net", Config: []byte(`{}`)}},
		Created:     at,
		Changed:     at,
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Record)
		// want is part of the error; empty for none.
		want string
	}{
		"valid":                                {func(*Record) {}, ""},
		"adding without an address":            {func(r *Record) { r.State, r.Result, r.Claims = Adding, call.Result{}, nil }, ""},
		"releasing without an address":         {func(r *Record) { r.State, r.Result, r.Claims = Releasing, call.Result{}, nil }, ""},
		"tombstone":                            {func(r *Record) { r.State, r.Result, r.Claims, r.Invocations = Tombstone, call.Result{}, nil, nil }, ""},
		"container ID of 128 bytes":            {func(r *Record) { r.ContainerID = strings.Repeat("a", 128) }, ""},
		"container ID of 129 bytes":            {func(r *Record) { r.ContainerID = strings.Repeat("a", 129) }, "containerID"},
		"no container ID":                      {func(r *Record) { r.ContainerID = "" }, "containerID"},
		"container ID with a slash":            {func(r *Record) { r.ContainerID = "a/b" }, "containerID"},
		"container ID is the parent directory": {func(r *Record) { r.ContainerID = ".." }, "containerID"},
		"container ID with a line feed":        {func(r *Record) { r.ContainerID = "a\n" }, "containerID"},
		"no owner":                             {func(r *Record) { r.Owner = "" }, "owner"},
		"no pool":                              {func(r *Record) { r.Pool = "" }, "pool"},
		"no state":                             {func(r *Record) { r.State = "" }, `state ""`},
		"unknown state":                        {func(r *Record) { r.State = "lent" }, `state "lent"`},
		"no invocation":                        {func(r *Record) { r.Invocations = nil }, "no invocation"},
		"invocation without configuration":     {func(r *Record) { r.Invocations[0].Config = nil }, "invalid configuration"},
		"invocation with a torn configuration": {func(r *Record) { r.Invocations[0].Config = []byte(`{`) }, "invalid configuration"},
		"held without an address":              {func(r *Record) { r.Result, r.Claims = call.Result{}, nil }, "without an address"},
		"cooldown without an address":          {func(r *Record) { r.State, r.Result, r.Claims = Cooldown, call.Result{}, nil }, "without an address"},
		"invalid address":                      {func(r *Record) { r.Result.Addresses[0].Prefix = netip.Prefix{} }, "invalid address"},
		"IPv4 address mapped to IPv6": {func(r *Record) {
			r.Result.Addresses[0].Prefix = netip.MustParsePrefix("::ffff:10.1.0.7/120")
		}, "invalid address"},
		"claim without an address":   {func(r *Record) { r.Result.Addresses = r.Result.Addresses[:1] }, `family "ipv6"`},
		"claim of an unknown family": {func(r *Record) { r.Claims = []Family{"ipx"} }, `family "ipx"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := dualStack()
			c.change(&r)
			err := r.Validate()
			if c.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want …%s…", err, c.want)
			}
			if err == nil && !ValidContainerID(r.ContainerID) {
				t.Errorf("container ID %q is valid in a record only", r.ContainerID)
			}
		})
	}
}

func TestJSONRoundTrip(t *testing.T) {
	r := dualStack()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Record
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%+v became %+v, %v", r, back, err)
	}
}

func TestJSONKeys(t *testing.T) {
	data, err := json.Marshal(dualStack())
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"containerID", "owner", "pool", "node", "state", "network", "result", "claims", "expiration",
		"invocations", "bootID", "machineID", "created", "changed",
	} {
		if _, ok := keys[key]; !ok {
			t.Errorf("%q is missing in %s", key, data)
		}
	}
	for _, key := range []string{"generation", "releaseAt"} {
		if _, ok := keys[key]; ok {
			t.Errorf("%q is present although it is zero", key)
		}
	}
}

func TestClone(t *testing.T) {
	r := dualStack()
	c := r.Clone()
	if !reflect.DeepEqual(c, r) {
		t.Fatalf("the clone is %+v, want %+v", c, r)
	}
	c.Claims[0] = "changed"
	c.Invocations[0].Network = "changed"
	c.Result.Addresses[0] = call.Address{}
	c.Expiration.UUID = "changed"
	if !reflect.DeepEqual(r, dualStack()) {
		t.Errorf("changing the clone made the record %+v", r)
	}
	var empty Record
	if c := empty.Clone(); !reflect.DeepEqual(c, empty) {
		t.Errorf("the clone of a zero record is %+v", c)
	}
}

func TestFamilyOf(t *testing.T) {
	for address, want := range map[string]Family{"10.0.0.1": IPv4, "::ffff:10.0.0.1": IPv4, "fd00::1": IPv6, "fe80::1%eth0": IPv6} {
		if got := FamilyOf(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	r := dualStack()
	r.Claims = []Family{IPv6}
	if a, ok := r.Address(IPv4); !ok || a.Addr() != netip.MustParseAddr("10.1.0.8") {
		t.Errorf("IPv4 address %v, %t; want the last one", a, ok)
	}
	if a, ok := r.Address(IPv6); !ok || a.Addr() != netip.MustParseAddr("fd00::7") {
		t.Errorf("IPv6 address %v, %t; want the last one", a, ok)
	}
	if r.Claimed(IPv4) || !r.Claimed(IPv6) {
		t.Errorf("claims %v: IPv4 %t, IPv6 %t", r.Claims, r.Claimed(IPv4), r.Claimed(IPv6))
	}
	for ip, want := range map[string]bool{"10.1.0.7": true, "10.1.0.8": true, "fd00::7": true, "10.1.0.1": false, "10.1.0.0": false} {
		if got := r.Holds(netip.MustParseAddr(ip)); got != want {
			t.Errorf("holds %s: %t, want %t", ip, got, want)
		}
	}
	if got := fmt.Sprint(r.Addrs()); got != "[10.1.0.7 fd00::7 10.1.0.8]" || len(r.Addresses()) != 3 {
		t.Errorf("addresses %s, %v", got, r.Addresses())
	}
	var none *Record
	if len(none.Addrs()) != 0 || len(none.Addresses()) != 0 {
		t.Errorf("a nil record has %v", none.Addresses())
	}
	r.Result.Addresses = slices.Clone(r.Result.Addresses[:1])
	if a, ok := r.Address(IPv6); ok {
		t.Errorf("IPv6 address %v; want none", a)
	}
}
