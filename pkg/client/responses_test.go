package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

const uuid = "8f4e8b0a-58b2-4a53-8c7e-2f6f6e1c3a55"

func TestAllocation(t *testing.T) {
	const body = `{
  "address": {"ipv4": "10.15.0.2", "ipv4-pool-name": "blue", "ipv4-expiration-uuid": "` + uuid + `"},
  "ipv4": {"ip": "10.15.0.2", "gateway": "10.15.0.1", "cidrs": ["10.15.0.0/24"], "expiration-uuid": "` + uuid + `"},
  "host-addressing": {"ipv4": {"enabled": true, "ip": "10.15.0.9", "alloc-range": "10.15.0.0/24"}}
}`
	c, _ := start(t, response{code: 201, body: body})
	got, err := c.Allocate(t.Context(), "router", client.AllocateOptions{})
	check.Must(t, err)
	want := &models.IPAMResponse{
		Address:        &models.AddressPair{IPv4: "10.15.0.2", IPv4PoolName: "blue", IPv4ExpirationUUID: uuid},
		IPv4:           &models.IPAMAddressResponse{IP: "10.15.0.2", Gateway: "10.15.0.1", Cidrs: []string{"10.15.0.0/24"}, ExpirationUUID: uuid},
		HostAddressing: &models.NodeAddressing{IPv4: &models.NodeAddressingElement{Enabled: true, IP: "10.15.0.9", AllocRange: "10.15.0.0/24"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
}

func TestList(t *testing.T) {
	const body = `[{"owner":"a","pool":"default","state":"cooldown","addresses":[{"family":"ipv4","ip":"10.0.0.1"}],"claims":["ipv4"],"new":1},` +
		`{"owner":"b","pool":"default","state":"adding","addresses":[],"claims":[]}]`
	c, _ := start(t, response{code: 200, body: body + "\n"})
	got, err := c.List(t.Context())
	if err != nil || len(got) != 2 || got[0].Owner != "a" || got[0].Addresses[0].IP != "10.0.0.1" || got[1].State != models.AttachmentStateAdding {
		t.Errorf("got %+v, %v; want both attachments", got, err)
	}
	c, _ = start(t, response{code: 200, body: "[]\n"})
	if got, err := c.List(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want none", got, err)
	}
}

func TestAllocated(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")
	addresses := []*models.AttachmentAddress{{Family: client.IPv6, IP: "fd00::9"}, {Family: client.IPv4, IP: "10.0.0.1"}, {Family: client.IPv4, IP: "10.0.0.9"}}
	for name, tt := range map[string]struct {
		claims []string
		want   []netip.Addr
	}{
		"both":      {[]string{client.IPv6, client.IPv4}, []netip.Addr{v4, v6}},
		"last IPv4": {[]string{client.IPv4}, []netip.Addr{v4}},
		"none":      {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := client.Allocated(&models.Attachment{Addresses: addresses, Claims: tt.claims}); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v; want %v", got, tt.want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	const body = `{"cilium":{"state":"Failure","msg":"m"},"delegated-ipam":{"version":"v1","started":"2026-03-01T12:00:00.000Z",` +
		`"ready":false,"reasons":["no plugin"],"pools":[{"pool":"default","profile-facts":{"addActsSeconds":12345678901234567890}}],"quarantined":[]}}`
	c, _ := start(t, response{code: 200, body: body})
	got, err := c.Status(t.Context())
	check.Must(t, err)
	want := &models.StatusResponse{
		Cilium: &models.Status{State: models.StatusStateFailure, Msg: "m"},
		DelegatedIpam: &models.DelegatedIPAMStatus{
			Version: "v1", Started: strfmt.DateTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), Reasons: []string{"no plugin"},
			Pools:       []*models.PoolStatus{{Pool: "default", ProfileFacts: map[string]any{"addActsSeconds": json.Number("12345678901234567890")}}},
			Quarantined: []*models.QuarantinedRecord{},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
}

// The list has the name of the default pool, which requests may leave out.
func TestReleaseOwner(t *testing.T) {
	const list = `[{"owner":"router","pool":"blue","state":"held","claims":["ipv4","ipv6"],"addresses":[{"family":"ipv4","ip":"10.0.0.1"},{"family":"ipv6","ip":"fd00::1"}]},
		{"owner":"router","pool":"default","state":"held","claims":["ipv4"],"addresses":[{"family":"ipv4","ip":"10.0.0.2"}]}]`
	for name, tt := range map[string]struct {
		status, pool string
		want         string
	}{
		"default pool":       {`{"delegated-ipam":{"options":[{"name":"ipam-default-ip-pool","value":"blue"}]}}`, "", "[10.0.0.1 fd00::1] /v1/healthz /v1/ipam /v1/ipam/10.0.0.1?owner=router&pool=blue /v1/ipam/fd00::1?owner=router&pool=blue"},
		"usual default pool": {`{"delegated-ipam":{}}`, client.DefaultPool, "[10.0.0.2] /v1/healthz /v1/ipam /v1/ipam/10.0.0.2?owner=router&pool=default"},
		"named pool":         {"", "blue", "[10.0.0.1 fd00::1] /v1/ipam /v1/ipam/10.0.0.1?owner=router&pool=blue /v1/ipam/fd00::1?owner=router&pool=blue"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked string
			c := connect(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked += " " + r.URL.RequestURI()
				_, _ = w.Write([]byte(map[string]string{"/v1/healthz": tt.status, "/v1/ipam": list}[r.URL.Path]))
			})))
			released, err := c.ReleaseOwner(t.Context(), "router", client.ReleaseOptions{Pool: tt.pool})
			if got := fmt.Sprint(released) + asked; err != nil || got != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
	c, _ := start(t, response{code: 200, body: "[]"})
	if _, err := c.ReleaseOwner(t.Context(), "router", client.ReleaseOptions{Pool: "blue"}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v; want ErrNotFound", err)
	}
}
