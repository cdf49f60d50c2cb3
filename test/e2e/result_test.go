package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestResultAsInCiliumCNI(t *testing.T) {
	t.Parallel()
	const ip4 = `{"address":"10.15.0.7/24","gateway":"10.15.0.1"}`
	tests := map[string]struct{ ips, rest string }{
		"both families":                   {ips: ip4 + `,{"address":"fd00:15::7/64","gateway":"fd00:15::1"}`},
		"link-local gateway":              {ips: `{"address":"10.15.0.7/24","gateway":"169.254.1.1"},{"address":"fd00:15::7/64","gateway":"fe80::1"}`},
		"unspecified gateway":             {ips: `{"address":"10.15.0.7/24","gateway":"0.0.0.0"},{"address":"fd00:15::7/64","gateway":"::"}`},
		"gateway outside the subnet":      {ips: `{"address":"10.15.0.7/32","gateway":"192.0.2.1"}`},
		"several addresses of one family": {ips: ip4 + `,{"address":"10.16.0.8/16"},{"address":"10.17.0.9/16","gateway":"10.17.0.1"}`},
		"several of both families":        {ips: `{"address":"fd00:15::7/64"},` + ip4 + `,{"address":"fd00:16::8/64","gateway":"fd00:16::1"},{"address":"10.16.0.8/16"}`},
		"interface with MAC and name":     {ips: ip4, rest: `,"interfaces":[{"name":"eth9","mac":"02:00:00:00:00:01"}]`},
		"interface with MAC":              {ips: ip4, rest: `,"interfaces":[{"mac":"02-00-00-00-00-0A"}]`},
		"interface in sandbox":            {ips: ip4, rest: `,"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/a"}]`},
		"two uplinks":                     {ips: ip4, rest: `,"interfaces":[{"name":"a","mac":"02:00:00:00:00:01"},{"name":"b","mac":"02:00:00:00:00:02"}]`},
		"uplink for both families":        {ips: ip4 + `,{"address":"fd00:15::7/64"}`, rest: `,"interfaces":[{"name":"eth9","mac":"02:00:00:00:00:01"}]`},
		"routes and DNS":                  {ips: ip4, rest: `,"routes":[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16","gw":"10.15.0.9"}],"dns":{"nameservers":["10.15.0.53"],"search":["example"]}`},
		"malformed MAC":                   {ips: ip4, rest: `,"interfaces":[{"name":"eth9","mac":"banana"}]`},
		"unknown uplink":                  {ips: ip4, rest: `,"interfaces":[{"name":"no-such-link"}]`},
	}
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			wantSameAsCiliumCNI(t, s, plugin, fmt.Sprintf(`{"cniVersion":"1.0.0","ips":[%s]%s}`, tt.ips, tt.rest))
		})
	}
}

func TestResultUplinkByName(t *testing.T) {
	t.Parallel()
	const mac = "02:00:00:00:00:42"
	ns := harness.NewNetNS(t)
	harness.IP(t, "-n", ns, "link", "add", "uplink0", "address", mac, "type", "veth", "peer", "name", "far0")
	n, plugin := scriptedNode(t, "scripted", nil)
	n.Wrapper = []string{"ip", "netns", "exec", ns}
	s := n.Start(t)

	const ips = `{"cniVersion":"1.0.0","ips":[{"address":"10.15.0.7/24"},{"address":"fd00:15::7/64"}],"interfaces":[%s]}`
	plugin.SetScript(t, "ADD", `{"result":`+fmt.Sprintf(ips, `{"name":"uplink0"}`)+`}`)
	got := s.Allocate(t, harness.Request{Owner: "router"})
	want, err := ciliumCNI(t, fmt.Sprintf(ips, `{"name":"uplink0","mac":"`+mac+`"}`))
	check.Must(t, err)
	wantAllocation(t, got, want)
	if got.IPv4.MasterMAC != mac {
		t.Errorf("the master-mac is %q; want %s", got.IPv4.MasterMAC, mac)
	}
	s.Release(t, got.Addresses()...)
}

// wantSameAsCiliumCNI makes the plugin return a result, compares the response with what
// cilium-cni derives from that result, and releases the addresses.
func wantSameAsCiliumCNI(t *testing.T, s *harness.Daemon, plugin harness.Scripted, result string) {
	t.Helper()
	plugin.SetScript(t, "ADD", `{"result":`+result+`}`)
	owner := strings.ReplaceAll(t.Name(), "/", "-")
	want, rejected := ciliumCNI(t, result)
	a := s.TryAllocate(t, harness.Request{Owner: owner})
	if rejected != nil {
		deletes := plugin.CallCount(t, "DEL")
		if a.Status != http.StatusBadGateway || deletes == 0 {
			t.Errorf("answered %s after %d DELs; cilium-cni rejects the result (%v) and releases it", a, deletes, rejected)
		}
		return
	}
	got := a.Allocation(t)
	wantAllocation(t, got, want)
	s.Release(t, got.Addresses()...)
}
