package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func listed(owner, state string, addresses ...string) *models.Attachment {
	a := &models.Attachment{Owner: owner, Network: "pods", ContainerID: ownID(owner), Interface: "eth0", State: state}
	for _, ip := range addresses {
		a.Addresses = append(a.Addresses, &models.AttachmentAddress{IP: ip})
	}
	return a
}

// observed returns the observations of a ready daemon with an empty list and an empty store, with changes.
func observed(changes ...func(*Observations)) *Observations {
	o := &Observations{
		Status: &models.DelegatedIPAMStatus{Ready: true},
		pools:  []pool{newPool(nil)},
	}
	for _, change := range changes {
		change(o)
	}
	return o
}

// both sets the list before and after the store is read.
func both(all ...*models.Attachment) func(*Observations) {
	return func(o *Observations) { o.Before, o.After = all, all }
}

func stored(all ...hostlocal.Lease) func(*Observations) {
	return func(o *Observations) { o.pools[0].store.leases = all }
}

// problems returns state, check and address of each finding that is not OK.
func problems(all []Finding) []string {
	var out []string
	for _, f := range all {
		if f.State != OK {
			out = append(out, string(f.State)+" "+f.Check+" "+f.Address)
		}
	}
	return out
}

func TestStoresAndList(t *testing.T) {
	before := func(all ...*models.Attachment) func(*Observations) { return func(o *Observations) { o.Before = all } }
	after := func(all ...*models.Attachment) func(*Observations) { return func(o *Observations) { o.After = all } }
	const held, adding, releasing, cooldown = models.AttachmentStateHeld, models.AttachmentStateAdding, models.AttachmentStateReleasing, models.AttachmentStateCooldown
	lease := leased("10.15.0.2", ownID("router"))
	ofInterface, ofNetwork := listed("router", held, "10.15.0.2"), listed("router", held, "10.15.0.2")
	ofInterface.Interface, ofNetwork.Network = "eth1", "others"
	for name, tt := range map[string]struct {
		observed *Observations
		want     []string
	}{
		"nothing held":                        {observed(), nil},
		"held":                                {observed(both(listed("router", held, "10.15.0.2")), stored(lease)), nil},
		"in cooldown":                         {observed(both(listed("router", cooldown, "10.15.0.2")), stored(lease)), nil},
		"lease of a pod":                      {observed(stored(leased("10.15.0.2", "0123456789abcdef"))), nil},
		"leaked lease":                        {observed(stored(lease)), []string{"warning leases 10.15.0.2"}},
		"lease missing in its attachment":     {observed(both(listed("router", held)), stored(lease)), []string{"warning leases 10.15.0.2"}},
		"attachment of another network":       {observed(both(ofNetwork), stored(lease)), []string{"warning leases 10.15.0.2"}},
		"attachment of another interface":     {observed(both(ofInterface), stored(lease)), []string{"warning leases 10.15.0.2", "error leases 10.15.0.2"}},
		"ADD in progress":                     {observed(both(listed("router", adding)), stored(lease)), nil},
		"DEL in progress":                     {observed(both(listed("router", releasing)), stored(lease)), nil},
		"DEL in progress, lease removed":      {observed(both(listed("router", releasing, "10.15.0.2"))), nil},
		"lost lease":                          {observed(both(listed("router", held, "10.15.0.2"))), []string{"error leases 10.15.0.2"}},
		"lost lease in cooldown":              {observed(both(listed("router", cooldown, "10.15.0.2"))), []string{"error leases 10.15.0.2"}},
		"lease of another ID":                 {observed(both(listed("router", held, "10.15.0.2")), stored(leased("10.15.0.2", "pod"))), []string{"error leases 10.15.0.2"}},
		"allocated before the store was read": {observed(after(listed("router", held, "10.15.0.2")), stored(lease)), nil},
		"allocated after the store was read":  {observed(after(listed("router", held, "10.15.0.2"))), nil},
		"released after the store was read":   {observed(before(listed("router", held, "10.15.0.2")), stored(lease)), nil},
		"released before the store was read":  {observed(before(listed("router", held, "10.15.0.2"))), nil},
		"stale files":                         {observed(func(o *Observations) { o.pools[0].store.stale = ips("10.15.0.3", "fd00::3") }), []string{"warning stale-lease-files 10.15.0.3", "warning stale-lease-files fd00::3"}},
		"removed stale files":                 {observed(func(o *Observations) { o.pools[0].store.removed = ips("10.15.0.3") }), nil},
		"unreadable store":                    {observed(both(listed("router", held, "10.15.0.2")), func(o *Observations) { o.pools[0].store.err = errors.New("no") }), []string{"error store "}},
		"failed repair": {observed(func(o *Observations) {
			o.pools[0].store.err, o.pools[0].store.stale = errors.New("no"), ips("10.15.0.3")
		}), []string{"error store ", "warning stale-lease-files 10.15.0.3"}},
		"pool without a network":  {observed(func(o *Observations) { o.pools[0].confErr = errors.New("none") }), nil},
		"other plugin":            {observed(both(listed("router", held, "10.15.0.2")), func(o *Observations) { o.pools[0].network.IPAMType = "static" }), nil},
		"no list":                 {observed(stored(lease), func(o *Observations) { o.ListErr = errors.New("no") }), []string{"error daemon "}},
		"no response":             {&Observations{StatusErr: errors.New("no")}, []string{"error daemon "}},
		"no response, stale file": {&Observations{StatusErr: errors.New("no"), pools: []pool{newPool(func(p *pool) { p.store.leases, p.store.stale = []hostlocal.Lease{lease}, ips("10.15.0.3") })}}, []string{"error daemon ", "warning stale-lease-files 10.15.0.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(tt.observed, "daemon", "store", "stale-lease-files", "leases", "attachments")
			check.Equal(t, "problems", problems(got), tt.want)
			wantRemedies(t, got)
		})
	}
}

// The findings of a node without a daemon and plugin are in the order of the checks.
func TestOrder(t *testing.T) {
	o := &Observations{StatusErr: errors.New("not running")}
	c := newConfig(t)
	o.Collect(t.Context(), c, c.SocketPath, false)
	var got []string
	for _, f := range Diagnose(o) {
		got = append(got, f.Check)
	}
	want := "daemon options environment socket state-dir disk-space disk-space cni-config plugin runtime-gc plugin-files plugin-state store stale-lease-files"
	check.True(t, strings.Join(got, " ") == want, "found %v; want %s", got, want)
}

func TestWorst(t *testing.T) {
	for name, tt := range map[string]struct {
		states []State
		want   State
	}{
		"none":        {nil, OK},
		"all ok":      {[]State{OK, OK}, OK},
		"warning":     {[]State{OK, Warning, OK}, Warning},
		"error first": {[]State{Error, Warning, OK}, Error},
		"error last":  {[]State{OK, Warning, Error}, Error},
	} {
		t.Run(name, func(t *testing.T) {
			var all []Finding
			for _, s := range tt.states {
				all = append(all, Finding{State: s})
			}
			check.Equal(t, "worst", Worst(all), tt.want)
		})
	}
}
