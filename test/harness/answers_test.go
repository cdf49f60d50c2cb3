package harness

import (
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

func TestWhatClientsAreToldIsJudgedInTheEnd(t *testing.T) {
	const asks, asksFor = "/v1/ipam?owner=router", "/v1/ipam/10.15.0.2"
	given := Answer{Status: 201, Body: []byte(`{"address":{"ipv4":"10.15.0.2"}}`)}
	done, refused := Answer{Status: 200}, Answer{Status: 502, Body: []byte(`"no"`)}
	type told struct {
		method, path string
		header       []string
		answer       Answer
	}
	allocated := told{"POST", asks, nil, given}
	released := told{"DELETE", asksFor, nil, done}

	tests := map[string]struct {
		told   []told
		forget bool
		held   bool
		want   oracle.Invariant
	}{
		"allocated and held":                       {told: []told{allocated}, held: true},
		"allocated and gone":                       {told: []told{allocated}, want: oracle.NothingLost},
		"allocated, and what it was is taken away": {told: []told{allocated}, forget: true},
		"refused and gone":                         {told: []told{{"POST", asks, nil, refused}}},
		"to be confirmed and gone":                 {told: []told{{"POST", asks, []string{"expiration", "true"}, given}}},
		"of another pool":                          {told: []told{{"POST", asks + "&pool=blue", nil, given}}},
		"restored and gone":                        {told: []told{{"POST", asksFor + "?owner=router", nil, done}}, want: oracle.NothingLost},
		"released and gone":                        {told: []told{allocated, released}},
		"released and handed out":                  {told: []told{allocated, released}, held: true, want: oracle.StaysReleased},
		"released, asked for again and handed out": {told: []told{allocated, released, allocated}, held: true},
		"released, asked for again without success": {
			told: []told{allocated, released, {"POST", asks, nil, refused}}, held: true,
		},
		"the release was refused": {told: []told{allocated, {"DELETE", asksFor, nil, refused}}},
		"handed to two":           {told: []told{allocated, {"POST", "/v1/ipam?owner=health", nil, given}}, held: true, want: oracle.NoDouble},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := &Node{answers: newAnswers()}
			for _, a := range tt.told {
				q := questionOf(a.method, a.path, a.header)
				owner := n.answers.ownerOf(q)
				n.answers.sent(q)
				n.answers.came(q, owner, a.answer)
			}
			if tt.forget {
				n.ForgetAnswers()
			}
			var now oracle.Final
			if tt.held {
				lease := oracle.Lease{Network: "pods", IP: netip.MustParseAddr("10.15.0.2"), ContainerID: "cilium-agent-router-1"}
				now = oracle.Final{Stored: []oracle.Lease{lease}, Listed: []oracle.Held{{Lease: lease, Owner: "router", Claimed: true}}}
			}
			found := n.answers.soFar().Judge(now)
			if tt.want == "" && len(found) > 0 || tt.want != "" && (len(found) == 0 || found[0].Invariant != tt.want) {
				t.Errorf("judged %v; want %q", found, tt.want)
			}
		})
	}
}
