package doctor

import (
	"os"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// attachmentsOf returns attachments of the pool of newPool and of another one.
func attachmentsOf(owner string, ips ...string) []*models.Attachment {
	list := []*models.Attachment{{Pool: "blue", Owner: owner, Addresses: []*models.AttachmentAddress{{IP: "10.9.9.9"}}}}
	for _, ip := range ips {
		list = append(list, &models.Attachment{Pool: "default", Owner: owner, Addresses: []*models.AttachmentAddress{{IP: ip}, {IP: "fd00::1"}}})
	}
	return list
}

func TestReleases(t *testing.T) {
	name := harness.NewNetNS(t)
	harness.IP(t, "-n", name, "link", "set", "lo", "up")
	harness.IP(t, "-n", name, "route", "add", "local", "10.77.0.8/29", "dev", "lo")
	ns := harness.NetNSPath(name)
	found := func(netNS string, list []*models.Attachment, fromAddress bool) []Finding {
		p := newPool(func(p *pool) {
			p.plugin.NetNS, p.plugin.Profile = netNS, profile.Profile{Type: "dhcp", ReleaseFromAddress: fromAddress}
		})
		return run(&Observations{Config: &daemon.Config{}, Before: list, pools: []pool{p}}, "netns")
	}
	runCases(t, map[string]testCase{
		"no address held":       {found(ns, attachmentsOf("router"), true), states(ok), []string{"checked once one is held"}},
		"pods only":             {found(ns, attachmentsOf("cni/id/eth0", "10.1.1.1"), true), states(ok), []string{"checked once one is held"}},
		"local":                 {found(ns, attachmentsOf("router", "10.77.0.8", "10.77.0.15"), true), states(ok), []string{"all 2 held addresses are local in " + ns}},
		"not local":             {found(ns, attachmentsOf("router", "10.77.0.8", "10.77.0.16"), true), states(warning), []string{"1 of 2 held addresses", "such as 10.77.0.16", "until it expires", "docs/reference/plugins.md"}},
		"no namespace":          {found("/nowhere", attachmentsOf("router", "10.77.0.8"), true), states(ok), []string{"not checked", "no such file", "CAP_SYS_ADMIN", "as root"}},
		"not a namespace":       {found(os.Args[0], attachmentsOf("router", "10.77.0.8"), true), states(ok), []string{"not checked", "invalid argument"}},
		"profile without field": {found(ns, attachmentsOf("router", "10.77.0.8"), false), nil, nil},
	})
}
