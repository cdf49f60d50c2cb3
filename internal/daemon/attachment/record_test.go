package attachment

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

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
		"claim without an address":   {func(r *Record) { r.Result.Addresses = r.Result.Addresses[:1] }, `families ["ipv4" "ipv6"]`},
		"claim of an unknown family": {func(r *Record) { r.Claims = []Family{"ipx"} }, `families ["ipx"]`},
	} {
		t.Run(name, func(t *testing.T) {
			r := dualStack()
			c.change(&r)
			err := r.Validate()
			if c.want == "" {
				check.NoError(t, err)
			} else {
				check.Error(t, err, c.want)
			}
		})
	}
}

func TestClone(t *testing.T) {
	r := dualStack()
	c := r.Clone()
	check.Equal(t, "clone", c, r)
	c.Claims[0] = "changed"
	c.Invocations[0].Network = "changed"
	c.Result.Addresses[0] = call.Address{}
	c.Expiration.UUID = "changed"
	check.Equal(t, "record after the clone was changed", r, dualStack())
	check.Equal(t, "clone of a zero record", Record{}.Clone(), Record{})
}

func TestFamilyOf(t *testing.T) {
	for address, want := range map[string]Family{"10.0.0.1": IPv4, "::ffff:10.0.0.1": IPv4, "fd00::1": IPv6, "fe80::1%eth0": IPv6} {
		check.Equal(t, address, FamilyOf(netip.MustParseAddr(address)), want)
	}
}

func TestAddresses(t *testing.T) {
	r := dualStack()
	r.Claims = []Family{IPv6}
	for family, want := range map[Family]string{IPv4: "10.1.0.8", IPv6: "fd00::7"} {
		a, ok := r.Address(family)
		check.True(t, ok && a.Addr().String() == want, "%s address %v, %t; want the last one", family, a, ok)
		check.Equal(t, "claimed "+string(family), r.Claimed(family), family == IPv6)
	}
	for ip, want := range map[string]bool{"10.1.0.7": true, "10.1.0.8": true, "fd00::7": true, "10.1.0.1": false, "10.1.0.0": false} {
		check.Equal(t, "holds "+ip, r.Holds(netip.MustParseAddr(ip)), want)
	}
	if got := fmt.Sprint(r.Addrs()); got != "[10.1.0.7 fd00::7 10.1.0.8]" || len(r.Addresses()) != 3 {
		t.Errorf("addresses %s, %v", got, r.Addresses())
	}
	var none *Record
	check.Equal(t, "addresses of a nil record", len(none.Addrs())+len(none.Addresses()), 0)
	r.Result.Addresses = slices.Clone(r.Result.Addresses[:1])
	a, ok := r.Address(IPv6)
	check.True(t, !ok, "IPv6 address of %v: got %v; want none", r.Result.Addresses, a)
}

// A clock that was set back does not extend the time of a late DEL.
func TestLateDelActsUntil(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		late LateDel
		want time.Time
	}{
		{LateDel{}, time.Time{}},
		{LateDel{Until: now.Add(time.Minute), Seconds: 3600}, now.Add(time.Minute)},
		{LateDel{Until: now.Add(24 * time.Hour), Seconds: 60}, now.Add(time.Minute)},
	} {
		got := tt.late.ActsUntil(now)
		check.True(t, got.Equal(tt.want), "%+v: %v; want %v", tt.late, got, tt.want)
	}
}
