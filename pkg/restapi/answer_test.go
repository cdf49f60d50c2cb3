package restapi_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

func TestAnAllocationIsAnsweredAsCiliumDoes(t *testing.T) {
	both := restapi.Addressing{EnableIPv4: true, EnableIPv6: true}
	tests := []struct {
		name, file, query string
		node              restapi.Addressing
		change            func(*engine)
	}{
		{
			name: "each family that is handed out", file: "allocate-both", node: dualStack,
		},
		{
			name: "only the family that was asked for", file: "allocate-ipv6", query: "&family=ipv6", node: dualStack,
		},
		{
			name: "only the family that is handed out", file: "allocate-claimed", node: dualStack,
			change: func(e *engine) { e.got.Claims = []record.Family{record.IPv4} },
		},
		{
			name: "the uplink and the expiration", file: "allocate-uplink", node: dualStack,
			change: func(e *engine) {
				e.got.Result.MasterMAC = "02:00:00:00:00:01"
				e.got.Expiration = &record.Expiration{UUID: "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
			},
		},
		{
			name: "no gateway, in another pool whose subnet is not in the range", file: "allocate-pool", node: dualStack,
			change: func(e *engine) {
				e.got.Pool = "blue"
				e.got.Result.Addresses = e.got.Result.Addresses[:1]
				e.got.Result.Addresses[0].Prefix = netip.MustParsePrefix("172.16.5.6/28")
				e.got.Result.Addresses[0].Gateway = netip.Addr{}
				e.got.Claims = []record.Family{record.IPv4}
			},
		},
		{
			name: "nothing configured and no router yet", file: "allocate-bare", node: both,
		},
		{
			name: "nothing configured and a router held", file: "allocate-router", node: both,
			change: func(e *engine) { e.all = []attachment.Attachment{held("health"), router()} },
		},
		{
			name: "one family enabled", file: "allocate-ipv4-only", query: "&family=ipv4",
			node: restapi.Addressing{EnableIPv4: true, RouterIPv4: dualStack.RouterIPv4},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, tt.node, restapi.Report{})
			f.engine.got = held("health")
			if tt.change != nil {
				tt.change(f.engine)
			}
			got := f.ask(t, http.MethodPost, "/v1/ipam?owner=health"+tt.query)
			wantCode(t, got, http.StatusCreated)
			golden(t, tt.file, got.body)
			for _, never := range []string{"invalid", "<nil>", `"gateway":""`} {
				if strings.Contains(got.body, never) {
					t.Errorf("the answer holds %s", never)
				}
			}
		})
	}
}

// router is the attachment that tells the router addresses where none are configured.
func router() attachment.Attachment {
	a := held("router")
	a.Result.Addresses[0].Prefix = netip.MustParsePrefix("10.1.2.200/24")
	a.Result.Addresses[1].Prefix = netip.MustParsePrefix("fd00:1::2c8/120")
	return a
}

func TestTheConfigurationSaysWhatIsKnownOfTheNode(t *testing.T) {
	both := restapi.Addressing{EnableIPv4: true, EnableIPv6: true}
	releasing, elsewhere := router(), router()
	releasing.State = record.Releasing
	elsewhere.Pool = "blue"
	for _, tt := range []struct {
		name, file string
		node       restapi.Addressing
		all        []attachment.Attachment
	}{
		{"all is configured", "config-configured", dualStack, []attachment.Attachment{router()}},
		{"nothing is configured and a router is held", "config-router", both, []attachment.Attachment{router()}},
		{"the router is released or in another pool", "config-bare", both, []attachment.Attachment{releasing, elsewhere}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, tt.node, restapi.Report{})
			f.engine.all = tt.all
			got := f.ask(t, http.MethodGet, "/v1/config")
			wantCode(t, got, http.StatusOK)
			golden(t, tt.file, got.body)
		})
	}
}

func TestTheListHoldsEveryAttachment(t *testing.T) {
	at := time.Date(2024, 5, 6, 8, 0, 0, 0, time.UTC)
	health, blue, adding, cooldown := held("health"), held("router"), held("ingress"), held("zebra")
	health.Verified, health.LastUsed = at, at.Add(time.Minute)
	health.Expiration = &record.Expiration{UUID: "6ba7b810-9dad-11d1-80b4-00c04fd430c8", Deadline: at.Add(time.Hour)}
	blue.Pool, blue.Lost, blue.LastError = "blue", true, "plugin host-local CHECK refused"
	adding.State, adding.Claims, adding.Result.Addresses, adding.Invocations = record.Adding, nil, nil, nil
	cooldown.State, cooldown.Claims, cooldown.ReleaseAt = record.Cooldown, nil, at.Add(2*time.Hour)
	cooldown.Result.Addresses = cooldown.Result.Addresses[:1]
	cooldown.Result.Addresses[0].Gateway = netip.Addr{}

	f := newFixture(t, dualStack, restapi.Report{})
	f.engine.all = []attachment.Attachment{blue, health, adding, cooldown}
	got := f.ask(t, http.MethodGet, "/v1/ipam")
	wantCode(t, got, http.StatusOK)
	golden(t, "list", got.body)
}

func TestAnEmptyListIsAnEmptyArray(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	got := f.ask(t, http.MethodGet, "/v1/ipam")
	wantCode(t, got, http.StatusOK)
	if strings.TrimSpace(got.body) != "[]" {
		t.Errorf("answered %q; expected []", got.body)
	}
}

// Who probes takes an answer for a sign that the engine is not locked for good.
func TestTheConfigurationIsAnsweredOnlyWhenTheEngineAnswers(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	wantCode(t, f.ask(t, http.MethodGet, "/v1/config"), http.StatusOK)
	if f.engine.lookups != 1 {
		t.Errorf("the engine was asked %d times; want once, although all is configured", f.engine.lookups)
	}
}
