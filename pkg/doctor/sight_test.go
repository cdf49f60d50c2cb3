package doctor

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
)

// listed is an attachment in the list.
func listed(owner, state string, addresses ...string) *models.Attachment {
	a := &models.Attachment{Owner: owner, Network: "pods", ContainerID: ours(owner), Interface: "eth0", State: state}
	for _, ip := range addresses {
		a.Addresses = append(a.Addresses, &models.AttachmentAddress{IP: ip})
	}
	return a
}

// leased is a lease in the store.
func leased(ip, containerID string) hostlocal.Lease {
	return hostlocal.Lease{IP: netip.MustParseAddr(ip), ContainerID: containerID, Interface: "eth0"}
}

// sight is a sidecar that is ready and lists nothing, and a store that is empty.
func sight(changes ...func(*Sight)) Sight {
	s := Sight{
		Status: &models.DelegatedIPAMStatus{Ready: true},
		Stores: []Store{{Pool: "default", Network: "pods", Plugin: "host-local", Dir: "/data/pods"}},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// both is a list that does not change while one looks.
func both(all ...*models.Attachment) func(*Sight) {
	return func(s *Sight) { s.Before, s.After = all, all }
}

func stored(all ...hostlocal.Lease) func(*Sight) {
	return func(s *Sight) { s.Stores[0].Leases = all }
}

// bad are the findings that are not OK, in short.
func bad(all []Finding) []string {
	var out []string
	for _, f := range all {
		if f.State != OK {
			out = append(out, string(f.State)+" "+string(f.Check)+" "+f.Address)
		}
	}
	return out
}

func TestFindings(t *testing.T) {
	const held, adding, releasing, cooldown = models.AttachmentStateHeld, models.AttachmentStateAdding, models.AttachmentStateReleasing, models.AttachmentStateCooldown
	lease := leased("10.15.0.2", ours("router"))
	ofInterface, ofNetwork := listed("router", held, "10.15.0.2"), listed("router", held, "10.15.0.2")
	ofInterface.Interface, ofNetwork.Network = "eth1", "others"
	tests := map[string]struct {
		sight Sight
		want  []string
	}{
		"nothing is held":                                      {sight(), nil},
		"what is held is in the store":                         {sight(both(listed("router", held, "10.15.0.2")), stored(lease)), nil},
		"what cools is in the store":                           {sight(both(listed("router", cooldown, "10.15.0.2")), stored(lease)), nil},
		"an address of a pod is nobody's business":             {sight(stored(leased("10.15.0.2", "0123456789abcdef"))), nil},
		"an address under an ID of ours that is not listed":    {sight(stored(lease)), []string{"warning leases 10.15.0.2"}},
		"an address more than its attachment has":              {sight(both(listed("router", held)), stored(lease)), []string{"warning leases 10.15.0.2"}},
		"an address that is listed in another network":         {sight(both(ofNetwork), stored(lease)), []string{"warning leases 10.15.0.2"}},
		"an address of another interface":                      {sight(both(ofInterface), stored(lease)), []string{"warning leases 10.15.0.2", "error leases 10.15.0.2"}},
		"an ADD on its way":                                    {sight(both(listed("router", adding)), stored(lease)), nil},
		"a DEL on its way that has not come":                   {sight(both(listed("router", releasing)), stored(lease)), nil},
		"a DEL on its way that has":                            {sight(both(listed("router", releasing, "10.15.0.2"))), nil},
		"held and not in the store":                            {sight(both(listed("router", held, "10.15.0.2"))), []string{"error leases 10.15.0.2"}},
		"in cooldown and not in the store":                     {sight(both(listed("router", cooldown, "10.15.0.2"))), []string{"error leases 10.15.0.2"}},
		"held in the store by somebody else":                   {sight(both(listed("router", held, "10.15.0.2")), stored(leased("10.15.0.2", "pod"))), []string{"error leases 10.15.0.2"}},
		"allocated while one looked":                           {sight(func(s *Sight) { s.After = []*models.Attachment{listed("router", held, "10.15.0.2")} }, stored(lease)), nil},
		"allocated after one had looked":                       {sight(func(s *Sight) { s.After = []*models.Attachment{listed("router", held, "10.15.0.2")} }), nil},
		"released while one looked":                            {sight(func(s *Sight) { s.Before = []*models.Attachment{listed("router", held, "10.15.0.2")} }, stored(lease)), nil},
		"released before one looked, and listed before that":   {sight(func(s *Sight) { s.Before = []*models.Attachment{listed("router", held, "10.15.0.2")} }), nil},
		"files without a container ID":                         {sight(func(s *Sight) { s.Stores[0].Empty = ips("10.15.0.3", "fd00::3") }), []string{"warning empty-files 10.15.0.3", "warning empty-files fd00::3"}},
		"files without a container ID that are removed":        {sight(func(s *Sight) { s.Stores[0].Removed = ips("10.15.0.3") }), nil},
		"a store that cannot be read is compared with nothing": {sight(both(listed("router", held, "10.15.0.2")), func(s *Sight) { s.Stores[0].Err = errors.New("no") }), []string{"error store "}},
		"a repair that stopped half way":                       {sight(func(s *Sight) { s.Stores[0].Err, s.Stores[0].Empty = errors.New("no"), ips("10.15.0.3") }), []string{"warning empty-files 10.15.0.3", "error store "}},
		"a pool without a network, of which conflist speaks":   {sight(func(s *Sight) { s.Stores = []Store{{Pool: "default"}} }), nil},
		"another plugin":                                       {sight(both(listed("router", held, "10.15.0.2")), func(s *Sight) { s.Stores[0].Plugin = "static" }), nil},
		"a list that is not told":                              {sight(stored(lease), func(s *Sight) { s.ListErr = errors.New("no") }), []string{"error sidecar "}},
		"a sidecar that does not answer":                       {Sight{StatusErr: errors.New("no")}, []string{"error sidecar "}},
		"files of a sidecar that does not answer":              {Sight{StatusErr: errors.New("no"), Stores: []Store{{Pool: "default", Network: "pods", Plugin: "host-local", Leases: []hostlocal.Lease{lease}, Empty: ips("10.15.0.3")}}}, []string{"error sidecar ", "warning empty-files 10.15.0.3"}},
		"a sidecar that is not ready, for two reasons":         {sight(func(s *Sight) { s.Status = &models.DelegatedIPAMStatus{Reasons: []string{"a", "b"}} }), []string{"error sidecar ", "error sidecar "}},
		"a sidecar that is not ready and does not say why":     {sight(func(s *Sight) { s.Status = &models.DelegatedIPAMStatus{} }), []string{"error sidecar "}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.sight.Findings()
			if !slices.Equal(bad(got), tt.want) {
				t.Errorf("got %q, want %q", bad(got), tt.want)
			}
			for _, f := range got {
				if f.Seen == "" || (f.State != OK) != (f.Do != "") {
					t.Errorf("%+v does not say what was seen, or what to do and nothing else", f)
				}
			}
		})
	}
}

func TestAFindingCarriesTheReasonAndTheFile(t *testing.T) {
	broken := sight(func(s *Sight) { s.ListErr = errors.New("list-reason") }, func(s *Sight) {
		s.Status = &models.DelegatedIPAMStatus{Reasons: []string{"ready-reason"}}
		s.Stores[0].Err = errors.New("store-reason")
		s.Stores[0].Empty = ips("10.15.0.3")
	}).Findings()
	silent := Sight{StatusErr: errors.New("status-reason")}.Findings()
	leaked := sight(stored(leased("10.15.0.2", ours("router")))).Findings()
	lost := sight(both(listed("health", models.AttachmentStateHeld, "10.15.0.7"))).Findings()
	var text strings.Builder
	for _, f := range slices.Concat(broken, silent, leaked, lost) {
		text.WriteString(f.Seen + "\n")
	}
	for _, says := range []string{
		"list-reason", "ready-reason", "store-reason", "status-reason",
		"/data/pods/10.15.0.3", "/data/pods/10.15.0.2", ours("router"), "/data/pods/10.15.0.7", ours("health"),
	} {
		if !strings.Contains(text.String(), says) {
			t.Errorf("nothing says %q in\n%s", says, text.String())
		}
	}
}

func TestTheWorstStateCounts(t *testing.T) {
	tests := map[string]struct {
		states []State
		want   State
	}{
		"of nothing":            {nil, OK},
		"of what is well":       {[]State{OK, OK}, OK},
		"a warning":             {[]State{OK, Warning, OK}, Warning},
		"an error before":       {[]State{Error, Warning, OK}, Error},
		"an error that is last": {[]State{OK, Warning, Error}, Error},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var all []Finding
			for _, s := range tt.states {
				all = append(all, Finding{State: s})
			}
			if got := Worst(all); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
