package harness

import (
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

func TestClientHistory(t *testing.T) {
	const allocatePath, addressPath = "/v1/ipam?owner=router", "/v1/ipam/10.15.0.2"
	created := Response{Status: 201, Body: []byte(`{"address":{"ipv4":"10.15.0.2"}}`)}
	ok, refused := Response{Status: 200}, Response{Status: 502, Body: []byte(`"no"`)}
	type exchange struct {
		method, path string
		header       []string
		response     Response
	}
	allocated := exchange{"POST", allocatePath, nil, created}
	allocateRefused := exchange{"POST", allocatePath, nil, refused}
	released := exchange{"DELETE", addressPath, nil, ok}

	tests := map[string]struct {
		exchanges []exchange
		reset     bool
		held      bool
		want      oracle.Invariant
	}{
		"allocated and held":           {exchanges: []exchange{allocated}, held: true},
		"allocated and lost":           {exchanges: []exchange{allocated}, want: oracle.NothingLost},
		"allocated, reset and lost":    {exchanges: []exchange{allocated}, reset: true},
		"refused and not held":         {exchanges: []exchange{allocateRefused}},
		"expired":                      {exchanges: []exchange{{"POST", allocatePath, []string{"expiration", "true"}, created}}},
		"in another pool":              {exchanges: []exchange{{"POST", allocatePath + "&pool=blue", nil, created}}},
		"restored and lost":            {exchanges: []exchange{{"POST", addressPath + "?owner=router", nil, ok}}, want: oracle.NothingLost},
		"released and not held":        {exchanges: []exchange{allocated, released}},
		"released and held":            {exchanges: []exchange{allocated, released}, held: true, want: oracle.StaysReleased},
		"released and allocated again": {exchanges: []exchange{allocated, released, allocated}, held: true},
		"released and refused":         {exchanges: []exchange{allocated, released, allocateRefused}, held: true},
		"release refused":              {exchanges: []exchange{allocated, {"DELETE", addressPath, nil, refused}}},
		"one address for two owners":   {exchanges: []exchange{allocated, {"POST", "/v1/ipam?owner=health", nil, created}}, held: true, want: oracle.NoDouble},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := &Node{history: newClientHistory()}
			for _, e := range tt.exchanges {
				r := parseRequest(e.method, e.path, e.header)
				owner := n.history.releasedOwner(r)
				n.history.requestSent(r)
				n.history.responseReceived(r, owner, e.response)
			}
			if tt.reset {
				n.ResetHistory()
			}
			var now oracle.Snapshot
			if tt.held {
				lease := oracle.Lease{Network: "pods", IP: netip.MustParseAddr("10.15.0.2"), ContainerID: "cilium-agent-router-1"}
				now = oracle.Snapshot{Stored: []oracle.Lease{lease}, Listed: []oracle.Listed{{Lease: lease, Owner: "router", Claimed: true}}}
			}
			found := n.history.current.Load().Check(now)
			if tt.want == "" && len(found) > 0 || tt.want != "" && (len(found) == 0 || found[0].Invariant != tt.want) {
				t.Errorf("found %v; want %q", found, tt.want)
			}
		})
	}
}
