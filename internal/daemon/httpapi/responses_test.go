package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// bothFamilies has neither router addresses nor ranges.
var bothFamilies = httpapi.Addressing{EnableIPv4: true, EnableIPv6: true}

func TestAllocateResponse(t *testing.T) {
	tests := []struct {
		name, file, query string
		node              httpapi.Addressing
		change            func(*fakeEngine)
	}{
		{name: "both families", file: "allocate-both", node: dualStack},
		{name: "requested family", file: "allocate-ipv6", query: "&family=ipv6", node: dualStack},
		{
			name: "claimed family", file: "allocate-claimed", node: dualStack,
			change: func(e *fakeEngine) { e.got.Claims = []attachment.Family{attachment.IPv4} },
		},
		{
			name: "uplink and expiration", file: "allocate-uplink", node: dualStack,
			change: func(e *fakeEngine) {
				e.got.Result.MasterMAC = "02:00:00:00:00:01"
				e.got.Expiration = &attachment.Expiration{UUID: "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
			},
		},
		{
			name: "another pool with a subnet outside the range and no gateway", file: "allocate-pool", node: dualStack,
			change: func(e *fakeEngine) {
				e.got.Pool = "blue"
				e.got.Result.Addresses = e.got.Result.Addresses[:1]
				e.got.Result.Addresses[0].Prefix = netip.MustParsePrefix("172.16.5.6/28")
				e.got.Result.Addresses[0].Gateway = netip.Addr{}
				e.got.Claims = []attachment.Family{attachment.IPv4}
			},
		},
		{name: "no configuration, no router", file: "allocate-bare", node: bothFamilies},
		{
			name: "no configuration, a held router", file: "allocate-router", node: bothFamilies,
			change: func(e *fakeEngine) { e.all = []engine.Attachment{held("health"), router()} },
		},
		{
			name: "one enabled family", file: "allocate-ipv4-only", query: "&family=ipv4",
			node: httpapi.Addressing{EnableIPv4: true, RouterIPv4: dualStack.RouterIPv4},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, tt.node)
			f.engine.got = held("health")
			if tt.change != nil {
				tt.change(f.engine)
			}
			got := f.send(t, http.MethodPost, "/v1/ipam?owner=health"+tt.query)
			wantCode(t, got, http.StatusCreated)
			golden(t, tt.file, got.body)
			for _, never := range []string{"invalid", "<nil>", `"gateway":""`} {
				check.True(t, !strings.Contains(got.body, never), "the response contains %s", never)
			}
		})
	}
}

func router() engine.Attachment {
	a := held("router")
	a.Result.Addresses[0].Prefix = netip.MustParsePrefix("10.1.2.200/24")
	a.Result.Addresses[1].Prefix = netip.MustParsePrefix("fd00:1::2c8/120")
	return a
}

func TestConfigResponse(t *testing.T) {
	releasing, elsewhere := router(), router()
	releasing.State = attachment.Releasing
	elsewhere.Pool = "blue"
	for _, tt := range []struct {
		name, file string
		node       httpapi.Addressing
		all        []engine.Attachment
	}{
		{"configured", "config-configured", dualStack, []engine.Attachment{router()}},
		{"not configured, a held router", "config-router", bothFamilies, []engine.Attachment{router()}},
		{"a router that is released or in another pool", "config-bare", bothFamilies, []engine.Attachment{releasing, elsewhere}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, tt.node)
			f.engine.all = tt.all
			got := f.send(t, http.MethodGet, "/v1/config")
			wantCode(t, got, http.StatusOK)
			golden(t, tt.file, got.body)
		})
	}
}

func TestListResponse(t *testing.T) {
	at := time.Date(2024, 5, 6, 8, 0, 0, 0, time.UTC)
	health, blue, adding, cooldown := held("health"), held("router"), held("ingress"), held("zebra")
	health.Verified, health.LastUsed = at, at.Add(time.Minute)
	health.Expiration = &attachment.Expiration{UUID: "6ba7b810-9dad-11d1-80b4-00c04fd430c8", Deadline: at.Add(time.Hour)}
	blue.Pool, blue.Lost, blue.LastError = "blue", true, "plugin host-local CHECK refused"
	adding.State, adding.Claims, adding.Result.Addresses, adding.Invocations = attachment.Adding, nil, nil, nil
	cooldown.State, cooldown.Claims, cooldown.ReleaseAt = attachment.Cooldown, nil, at.Add(2*time.Hour)
	cooldown.Result.Addresses = cooldown.Result.Addresses[:1]
	cooldown.Result.Addresses[0].Gateway = netip.Addr{}

	unclaimed := held("unclaimed")
	unclaimed.Claims = nil

	f := newDual(t)
	got := f.send(t, http.MethodGet, "/v1/ipam")
	wantCode(t, got, http.StatusOK)
	check.Equal(t, "empty list", strings.TrimSpace(got.body), "[]")

	f.engine.all = []engine.Attachment{blue, health, adding, cooldown, unclaimed}
	got = f.send(t, http.MethodGet, "/v1/ipam")
	wantCode(t, got, http.StatusOK)
	golden(t, "list", got.body)
}

func TestListLengths(t *testing.T) {
	f := newDual(t)
	for count := range 60 {
		a := held("default/" + strings.Repeat("x", count))
		f.engine.all = append(f.engine.all, engine.Attachment{Record: a.Record})
		rec := httptest.NewRecorder()
		f.handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/ipam", nil))
		if got := strings.Count(rec.Body.String(), `"owner":`); got != count+1 {
			t.Fatalf("%d attachments in %d bytes; want %d", got, rec.Body.Len(), count+1)
		}
	}
}
