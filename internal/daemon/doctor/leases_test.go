package doctor

import (
	"errors"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

// Each message names the address, the container ID and the file.
func TestLeaseMessages(t *testing.T) {
	const own = "cilium-agent-router-0123456789abcdef"
	ip := ips("10.15.0.2")[0]
	held := []*models.Attachment{{
		Owner: "router", Network: "pods", State: models.AttachmentStateHeld, ContainerID: own, Interface: "eth0",
		Addresses: []*models.AttachmentAddress{{Family: "ipv4", IP: ip.String()}},
	}}
	lease := hostlocal.Lease{IP: ip, ContainerID: own, Interface: "eth0"}
	for name, tt := range map[string]struct {
		leases []hostlocal.Lease
		list   []*models.Attachment
		state  State
		want   string
	}{
		"both":            {[]hostlocal.Lease{lease}, held, ok, `all 1 held addresses of network "pods" are in the store, and no other lease is the daemon's`},
		"lease only":      {[]hostlocal.Lease{lease}, nil, warning, `address 10.15.0.2 is leased to container ID ` + own + `, interface "eth0" (/data/pods/10.15.0.2), but the daemon does not list the address with that container ID and interface`},
		"list only":       {nil, held, failed, `the daemon lists address 10.15.0.2 with container ID ` + own + `, interface "eth0", but there is no lease of it (/data/pods/10.15.0.2): the plugin may allocate the address again`},
		"of profile try":  {[]hostlocal.Lease{{IP: ip, ContainerID: "delegated-ipam-try-0123456789ab-1", Interface: "eth0"}}, nil, warning, "address 10.15.0.2 is leased to container ID delegated-ipam-try-0123456789ab-1, interface \"eth0\" (/data/pods/10.15.0.2), of `profile try`"},
		"lease of others": {[]hostlocal.Lease{{IP: ip, ContainerID: "pod", Interface: "net1"}}, held, failed, `the daemon lists address 10.15.0.2 with container ID ` + own + `, interface "eth0", but it is leased to container ID pod, interface "net1" (/data/pods/10.15.0.2)`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(func(p *pool) { p.store.leases = tt.leases })
			got := run(&Observations{Status: &models.DelegatedIPAMStatus{}, Before: tt.list, After: tt.list, pools: []pool{p}}, "leases")
			if len(got) != 1 || got[0].State != tt.state || got[0].Message != tt.want {
				t.Errorf("got %+v; want\n%s", got, tt.want)
			}
		})
	}
}

func TestStoreFindings(t *testing.T) {
	unexpected := ips("10.15.0.3", "10.15.0.4")
	runCases(t, map[string]testCase{
		"readable":         {runPool("store", nil), states(ok), []string{"/data/pods"}},
		"unexpected files": {runPool("store", func(p *pool) { p.store.unexpected = unexpected }), states(warning, warning), []string{"/data/pods/10.15.0.3", "/data/pods/10.15.0.4"}},
		"unreadable":       {runPool("store", func(p *pool) { p.store.err = errors.New("I/O error") }), states(failed), []string{"I/O error"}},
		"other plugin":     {runPool("store", func(p *pool) { p.network.IPAMType = "static" }), states(ok), []string{"not checked", "static"}},
		"no network":       {runPool("store", func(p *pool) { p.confErr = errors.New("none") }), nil, nil},
	})
}

func TestStaleLeaseFiles(t *testing.T) {
	run := func(change func(*pool)) []Finding { return runPool("stale-lease-files", change) }
	runCases(t, map[string]testCase{
		"none":         {run(nil), states(ok), []string{"/data/pods"}},
		"two":          {run(func(p *pool) { p.store.stale = ips("10.15.0.3", "fd00::3") }), states(warning, warning), []string{"/data/pods/10.15.0.3", "/data/pods/fd00::3", "--repair"}},
		"removed":      {run(func(p *pool) { p.store.removed = ips("10.15.0.3") }), states(ok), []string{"was removed"}},
		"unreadable":   {run(func(p *pool) { p.store.err = errors.New("no") }), nil, nil},
		"other plugin": {run(func(p *pool) { p.network.IPAMType = "static" }), nil, nil},
	})
}
