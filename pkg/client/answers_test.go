package client_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

const uuid = "8f4e8b0a-58b2-4a53-8c7e-2f6f6e1c3a55"

func TestAllocation(t *testing.T) {
	const body = `{
  "address": {"ipv4": "10.15.0.2", "ipv4-pool-name": "blue", "ipv4-expiration-uuid": "` + uuid + `"},
  "ipv4": {"ip": "10.15.0.2", "gateway": "10.15.0.1", "cidrs": ["10.15.0.0/24"], "master-mac": "02:00:00:00:00:01",
    "interface-number": "0", "expiration-uuid": "` + uuid + `"},
  "host-addressing": {"ipv4": {"enabled": true, "ip": "10.15.0.9", "alloc-range": "10.15.0.0/24"}, "ipv6": {"enabled": true}}
}`
	c, _ := start(t, response{code: 201, body: body})
	got, err := c.Allocate(t.Context(), "router", client.AllocateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := &client.Allocation{
		IPv4: &client.AllocatedAddress{
			IP: netip.MustParseAddr("10.15.0.2"), Pool: "blue", Gateway: netip.MustParseAddr("10.15.0.1"),
			CIDRs: []netip.Prefix{netip.MustParsePrefix("10.15.0.0/24")}, ExpirationUUID: uuid,
			MasterMAC: "02:00:00:00:00:01", InterfaceNumber: "0",
		},
		HostIPv4: &client.HostAddressing{IP: netip.MustParseAddr("10.15.0.9"), AllocRange: netip.MustParsePrefix("10.15.0.0/24")},
		HostIPv6: &client.HostAddressing{},
		Raw:      json.RawMessage(body),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
}

func TestList(t *testing.T) {
	const first = `{"owner":"a","pool":"default","network":"n","node":"w","container-id":"c","interface":"eth0","state":"cooldown",` +
		`"addresses":[{"family":"ipv4","ip":"10.0.0.1","prefix":"10.0.0.1/24","gateway":"10.0.0.254"}],"claims":["ipv4"],` +
		`"expiration":{"uuid":"u","deadline":"2026-03-01T12:10:00.000Z"},"release-at":"2026-03-01T12:20:00.000Z",` +
		`"created":"2026-03-01T12:00:00.000Z","changed":"2026-03-01T12:01:00.000Z","verified":"2026-03-01T12:02:00.000Z",` +
		`"last-used":"2026-03-01T12:03:00.000Z","lost":true,"last-error":"e","new":1}`
	const second = `{"owner":"b","pool":"default","state":"adding","addresses":[],"claims":[]}`
	c, _ := start(t, response{code: 200, body: "[" + first + "," + second + "]\n"})
	got, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC) }
	want := []client.Attachment{
		{
			Owner: "a", Pool: "default", Network: "n", Node: "w", ContainerID: "c", Interface: "eth0", State: client.StateCooldown,
			Addresses: []client.Address{{
				Family: client.IPv4, IP: netip.MustParseAddr("10.0.0.1"), Prefix: netip.MustParsePrefix("10.0.0.1/24"),
				Gateway: netip.MustParseAddr("10.0.0.254"),
			}},
			Claims: []client.Family{client.IPv4}, Expiration: &client.Expiration{UUID: "u", Deadline: at(10)}, ReleaseAt: at(20),
			Created: at(0), Changed: at(1), Verified: at(2), LastUsed: at(3), Lost: true, LastError: "e", Raw: json.RawMessage(first),
		},
		{
			Owner: "b", Pool: "default", State: client.StateAdding, Addresses: []client.Address{}, Claims: []client.Family{},
			Raw: json.RawMessage(second),
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
	t.Run("empty", func(t *testing.T) {
		c, _ := start(t, response{code: 200, body: "[]\n"})
		if got, err := c.List(t.Context()); err != nil || len(got) != 0 {
			t.Errorf("got %v, %v; want none", got, err)
		}
	})
}

func TestAllocated(t *testing.T) {
	v4, v4b, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")
	addresses := []client.Address{{Family: client.IPv6, IP: v6}, {Family: client.IPv4, IP: v4}, {Family: client.IPv4, IP: v4b}}
	for name, tt := range map[string]struct {
		claims []client.Family
		want   []netip.Addr
	}{
		"both":      {[]client.Family{client.IPv6, client.IPv4}, []netip.Addr{v4b, v6}},
		"last IPv4": {[]client.Family{client.IPv4}, []netip.Addr{v4b}},
		"none":      {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := client.Attachment{Addresses: addresses, Claims: tt.claims}
			if got := a.Allocated(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v; want %v", got, tt.want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	const body = `{"cilium":{"state":"Failure"},"delegated-ipam":{"version":"v1","node-name":"w","started":"2026-03-01T12:00:00.000Z",` +
		`"ready":false,"reasons":["no plugin"],"pools":[{"pool":"default","profile-facts":{"idempotentAdd":true}}],"attachments":{"held":2},` +
		`"counters":{"lost":1},"oldest-pending-release":{"owner":"a","pool":"p","container-id":"c","since":"2026-03-01T12:00:00.000Z"},` +
		`"quarantined":[],"last-error":{"text":"x","time":"2026-03-01T12:00:00.000Z"},"options":[{"name":"pool","value":"","source":"flag"}]}}`
	c, _ := start(t, response{code: 200, body: body})
	got, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	want := &client.Status{
		Version: "v1", NodeName: "w", Started: noon, Reasons: []string{"no plugin"},
		Pools:                []client.PoolStatus{{Pool: "default", ProfileFacts: map[string]any{"idempotentAdd": true}}},
		Attachments:          map[client.State]int{client.StateHeld: 2},
		Counters:             map[string]int64{"lost": 1},
		OldestPendingRelease: &client.PendingRelease{Owner: "a", Pool: "p", ContainerID: "c", Since: noon},
		LastError:            &client.LastError{Text: "x", Time: noon},
		Quarantined:          []client.QuarantinedRecord{},
		Options:              []client.OptionValue{{Name: "pool", Source: "flag"}},
		Raw:                  json.RawMessage(body),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
}
