package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
)

func readyReport() *models.DelegatedIPAMStatus {
	since := func(second int) *strfmt.DateTime {
		return httpapi.OptionalTime(time.Date(2024, 5, 6, 7, 0, second, 0, time.UTC))
	}
	return &models.DelegatedIPAMStatus{
		Version:  "1.2.3",
		NodeName: "node-1",
		Started:  *since(0),
		Ready:    true,
		Since:    since(2),
		Pools: []*models.PoolStatus{{
			Pool: "default", Network: "pods", File: "/etc/cni/net.d/05-pods.conflist", Plugin: "host-local",
			Binary: "/opt/cni/bin/host-local", CniVersion: "1.1.0", PluginVersions: []string{"1.0.0", "1.1.0"},
			Profile: "host-local", ProfileFacts: map[string]any{"del": "released"},
			Verification: &models.PoolVerification{By: "check", Reason: "lookup is off"},
			Since:        since(1),
		}},
		MovedPlugins: []*models.MovedPlugin{
			{Pool: "default", Plugin: "host-local", Binary: "/opt/cni/bin/host-local", Executable: "/usr/libexec/cni/host-local"},
			{Pool: "default", Plugin: "static", Binary: "/opt/cni/bin/static", Error: "failed to find plugin"},
		},
		Counters: map[string]int64{"lost": 1, "duplicates": 0},
		Options:  []*models.OptionValue{{Name: "release-delay", Value: "1h0m0s", Source: "flag"}},
	}
}

func TestStatusResponse(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2024, 5, 6, 7, 0, second, 0, time.UTC) }
	unready := func() *models.DelegatedIPAMStatus {
		return &models.DelegatedIPAMStatus{
			Version: "1.2.3", Reasons: []string{"the state directory is locked by process 7", "no CNI configuration yet"},
		}
	}
	starting, stale, broken, awaited := unready(), readyReport(), unready(), readyReport()
	stale.Pools[0].Error = "05-pods.conflist: unexpected end of JSON input" // it still uses an older configuration
	broken.Pools = append([]*models.PoolStatus{{Pool: "blue", Error: "no network named blue in /etc/cni/net.d"}}, readyReport().Pools...)
	broken.Quarantined = []*models.QuarantinedRecord{{
		File: "/var/lib/delegated-ipam/quarantine/x", Reason: "checksum differs", Since: httpapi.OptionalTime(at(3)),
	}}
	broken.LastError = &models.LastError{
		Text: "plugin host-local ADD refused (code 11): no addresses left", Time: strfmt.DateTime(at(4)),
		Owner: "router", Pool: "default", ContainerID: "cilium-agent-router-1",
	}
	awaited.Pools = []*models.PoolStatus{{Pool: "default"}}

	for _, tt := range []struct {
		name, file, brief string
		report            *models.DelegatedIPAMStatus
	}{
		{"ready", "status-ready", "status-ready-brief", readyReport()},
		{"waiting", "status-starting", "status-starting-brief", starting},
		{"older configuration", "status-stale", "status-stale-brief", stale},
		{"missing configuration", "status-awaited", "status-ready-brief", awaited},
		{"broken configuration", "status-broken", "status-broken-brief", broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixtureWith(t, httpapi.Options{Addressing: dualStack, Reporter: reporter{*tt.report}})
			f.engine.all = mixedAttachments()
			full := f.send(t, http.MethodGet, "/v1/healthz")
			wantCode(t, full, http.StatusOK)
			golden(t, tt.file, full.body)
			brief := f.send(t, http.MethodGet, "/v1/healthz", "Brief", "true", "Require-K8s-Connectivity", "true")
			wantCode(t, brief, http.StatusOK)
			golden(t, tt.brief, brief.body)
		})
	}
}

// mixedAttachments returns two held attachments, one in another pool, and two pending releases.
func mixedAttachments() []engine.Attachment {
	health, blue, first, second := held("health"), held("ingress"), held("old"), held("older")
	blue.Pool = "blue"
	blue.Claims = []attachment.Family{attachment.IPv4}
	for _, a := range []*engine.Attachment{&first, &second} {
		a.State, a.Claims = attachment.Releasing, nil
	}
	second.Changed, second.LastError = first.Changed.Add(-time.Hour), "plugin host-local DEL ended with an unknown outcome: it was killed"
	return []engine.Attachment{health, blue, first, second}
}

func TestStatusFamilies(t *testing.T) {
	f := newFixtureWith(t, httpapi.Options{Addressing: httpapi.Addressing{EnableIPv6: true}, Reporter: reporter{*readyReport()}})
	got := f.send(t, http.MethodGet, "/v1/healthz")
	wantCode(t, got, http.StatusOK)
	golden(t, "status-ipv6", got.body)
}

// The state of one network is asked for by a header.
func TestStatusOfNetwork(t *testing.T) {
	f := newFixtureWith(t, httpapi.Options{Addressing: dualStack, Reporter: reporter{*readyReport()}})
	for network, want := range map[string]string{"": `"state":"Ok"`, "pods": "report of network pods"} {
		header := []string{"Brief", "true", "Network", network}
		if network == "" {
			header = header[:2]
		}
		got := f.send(t, http.MethodGet, "/v1/healthz", header...)
		wantCode(t, got, http.StatusOK)
		if !strings.Contains(got.body, want) {
			t.Errorf("network %q: got %s; want %s in it", network, got.body, want)
		}
	}
}
