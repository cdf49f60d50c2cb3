package plugin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// anyResult is a result without a CNI version.
type anyResult struct {
	ips        []ipOf
	interfaces string // JSON
	routes     string // JSON
	dns        string // JSON
}

type ipOf struct{ address, gateway string }

func (ip ipOf) family() string {
	if strings.Contains(ip.address, ":") {
		return "6"
	}
	return "4"
}

// in returns the result as a plugin prints it in a CNI version (CNI spec, the "Result" section of
// each). A result before 0.3.0 has one address of each family and no interfaces.
func (r anyResult) in(v string) string {
	object := map[string]any{"cniVersion": v}
	if r.dns != "" {
		object["dns"] = json.RawMessage(r.dns)
	}
	routes := json.RawMessage("[]")
	if r.routes != "" {
		routes = json.RawMessage(r.routes)
	}
	if !(call.Invocation{CNIVersion: v}).AtLeast("0.3.0") {
		for _, ip := range r.ips {
			object["ip"+ip.family()] = map[string]any{"ip": ip.address, "gateway": ip.gateway, "routes": routes}
			if ip.gateway == "" {
				object["ip"+ip.family()] = map[string]any{"ip": ip.address, "routes": routes}
			}
		}
		return marshal(object)
	}
	var ips []map[string]any
	for _, ip := range r.ips {
		entry := map[string]any{"address": ip.address}
		if ip.gateway != "" {
			entry["gateway"] = ip.gateway
		}
		if !(call.Invocation{CNIVersion: v}).AtLeast("1.0.0") {
			entry["version"] = ip.family()
		}
		ips = append(ips, entry)
	}
	object["ips"], object["routes"] = ips, routes
	if r.interfaces != "" {
		object["interfaces"] = json.RawMessage(r.interfaces)
	}
	return marshal(object)
}

// marshal returns the JSON of a value, or the text of the error.
func marshal(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func TestResultVersions(t *testing.T) {
	const mac = "02:00:00:00:00:0a"
	for name, c := range map[string]struct {
		result anyResult
		since  string // the first version that has it
		want   string
		mac    string
	}{
		"IPv4 alone":                   {anyResult{ips: []ipOf{{"10.1.0.9/24", "10.1.0.1"}}}, "0.1.0", "10.1.0.9/24 via 10.1.0.1", ""},
		"IPv6 alone":                   {anyResult{ips: []ipOf{{"fd00::9/64", "fd00::1"}}}, "0.1.0", "fd00::9/64 via fd00::1", ""},
		"both":                         {anyResult{ips: []ipOf{{"10.1.0.9/24", "10.1.0.1"}, {"fd00::9/64", "fd00::1"}}}, "0.1.0", "10.1.0.9/24 via 10.1.0.1, fd00::9/64 via fd00::1", ""},
		"a missing gateway":            {anyResult{ips: []ipOf{{"10.1.0.9/32", ""}, {"fd00::9/128", ""}}}, "0.1.0", "10.1.0.9/32, fd00::9/128", ""},
		"a link-local gateway":         {anyResult{ips: []ipOf{{"10.1.0.9/24", "169.254.1.1"}, {"fd00::9/64", "fe80::1"}}}, "0.1.0", "10.1.0.9/24 via 169.254.1.1, fd00::9/64 via fe80::1", ""},
		"two of one family":            {anyResult{ips: []ipOf{{"10.1.0.9/24", "10.1.0.1"}, {"10.2.0.9/24", "10.2.0.1"}}}, "0.3.0", "10.1.0.9/24 via 10.1.0.1, 10.2.0.9/24 via 10.2.0.1", ""},
		"IPv6 before IPv4":             {anyResult{ips: []ipOf{{"fd00::9/64", ""}, {"10.1.0.9/24", ""}}}, "0.3.0", "fd00::9/64, 10.1.0.9/24", ""},
		"an interface's MAC":           {anyResult{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"mac":"` + mac + `"}]`}, "0.3.0", "10.1.0.9/24", mac},
		"an interface's name":          {anyResult{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"name":"uplink"}]`}, "0.3.0", "10.1.0.9/24", "02:00:00:00:00:01"},
		"an interface's both":          {anyResult{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"name":"not looked up","mac":"` + mac + `"}]`}, "0.3.0", "10.1.0.9/24", mac},
		"an interface's nothing":       {anyResult{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{},{"mac":"` + mac + `"}]`}, "0.3.0", "10.1.0.9/24", ""},
		"a sandbox alone":              {anyResult{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"name":"eth0","mac":"` + mac + `","sandbox":"/ns"}]`}, "0.3.0", "10.1.0.9/24", ""},
		"a sandbox and then an uplink": {anyResult{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"name":"eth0","mac":"02:00:00:00:00:09","sandbox":"/ns"},{"mac":"` + mac + `"}]`}, "0.3.0", "10.1.0.9/24", mac},
		"two uplinks":                  {anyResult{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"mac":"` + mac + `"},{"name":"uplink"}]`}, "0.3.0", "10.1.0.9/24", mac},
		"routes and DNS": {anyResult{
			ips:    []ipOf{{"10.1.0.9/24", "10.1.0.1"}},
			routes: `[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16","gw":"10.1.0.254"}]`,
			dns:    `{"nameservers":["10.1.0.53"],"domain":"example.org","search":["a","b"],"options":["ndots:2"]}`,
		}, "0.1.0", "10.1.0.9/24 via 10.1.0.1", ""},
	} {
		for _, v := range version.All.SupportedVersions() {
			if !(call.Invocation{CNIVersion: v}).AtLeast(c.since) {
				continue
			}
			t.Run(fmt.Sprintf("%s in %s", name, v), func(t *testing.T) {
				got, err := parse([]byte(c.result.in(v)), v)
				if err != nil {
					t.Fatal(err)
				}
				if text := ipsOf(got); text != c.want {
					t.Errorf("got %s, want %s", text, c.want)
				}
				if got.MasterMAC != c.mac {
					t.Errorf("got MAC %q, want %q", got.MasterMAC, c.mac)
				}
				wantRaw(t, got.Raw, v, c.result)
			})
		}
	}
}

// wantRaw fails the test if the raw result is not of the version, or lacks the routes and DNS for CHECK
// and DEL.
func wantRaw(t *testing.T, raw json.RawMessage, v string, r anyResult) {
	t.Helper()
	prev, err := create.CreateFromBytes(raw)
	if err != nil {
		t.Fatalf("%s cannot be parsed: %v", raw, err)
	}
	if prev.Version() != v {
		t.Errorf("the raw result is of CNI version %s, want %s", prev.Version(), v)
	}
	for _, kept := range []string{"0.0.0.0/0", "192.168.0.0/16", "10.1.0.53", "example.org", "ndots:2"} {
		if strings.Contains(r.routes+r.dns, kept) && !strings.Contains(string(raw), kept) {
			t.Errorf("the raw result %s lacks %s", raw, kept)
		}
	}
}

// The table above has every version of the library's list. This is the list, so that a new version
// is noticed.
func TestResultConversions(t *testing.T) {
	want := "0.1.0 0.2.0 0.3.0 0.3.1 0.4.0 1.0.0 1.1.0"
	if got := strings.Join(version.All.SupportedVersions(), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, v := range version.All.SupportedVersions() {
		got, err := parse([]byte(anyResult{ips: []ipOf{{"10.1.0.9/24", ""}}}.in(v)), v)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range version.All.SupportedVersions() {
			converted, err := resultAs(got.Raw, to)
			if err != nil {
				t.Errorf("from %s to %s: %v", v, to, err)
				continue
			}
			var result types.Result
			if result, err = create.CreateFromBytes(converted); err != nil || result.Version() != to {
				t.Errorf("from %s to %s: got %s (%v)", v, to, converted, err)
			}
		}
	}
}
