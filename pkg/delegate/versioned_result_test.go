package delegate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
)

// answer is a result in no version yet.
type answer struct {
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

// in writes the result as a plugin prints it in a CNI version (CNI spec, the
// "Result" section of each). A result before 0.3.0 has one address of each
// family and no interfaces.
func (a answer) in(v string) string {
	object := map[string]any{"cniVersion": v}
	if a.dns != "" {
		object["dns"] = json.RawMessage(a.dns)
	}
	routes := json.RawMessage("[]")
	if a.routes != "" {
		routes = json.RawMessage(a.routes)
	}
	if !atLeast(v, "0.3.0") {
		for _, ip := range a.ips {
			object["ip"+ip.family()] = map[string]any{"ip": ip.address, "gateway": ip.gateway, "routes": routes}
			if ip.gateway == "" {
				object["ip"+ip.family()] = map[string]any{"ip": ip.address, "routes": routes}
			}
		}
		return text(object)
	}
	var ips []map[string]any
	for _, ip := range a.ips {
		entry := map[string]any{"address": ip.address}
		if ip.gateway != "" {
			entry["gateway"] = ip.gateway
		}
		if !atLeast(v, "1.0.0") {
			entry["version"] = ip.family()
		}
		ips = append(ips, entry)
	}
	object["ips"], object["routes"] = ips, routes
	if a.interfaces != "" {
		object["interfaces"] = json.RawMessage(a.interfaces)
	}
	return text(object)
}

// text writes what only strings and valid JSON went into.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func TestAResultOfEveryVersionIsReadAlike(t *testing.T) {
	const mac = "02:00:00:00:00:0a"
	for name, c := range map[string]struct {
		answer answer
		since  string // versions before it cannot say it
		want   string
		mac    string
	}{
		"IPv4 alone":                   {answer{ips: []ipOf{{"10.1.0.9/24", "10.1.0.1"}}}, "0.1.0", "10.1.0.9/24 via 10.1.0.1", ""},
		"IPv6 alone":                   {answer{ips: []ipOf{{"fd00::9/64", "fd00::1"}}}, "0.1.0", "fd00::9/64 via fd00::1", ""},
		"both":                         {answer{ips: []ipOf{{"10.1.0.9/24", "10.1.0.1"}, {"fd00::9/64", "fd00::1"}}}, "0.1.0", "10.1.0.9/24 via 10.1.0.1, fd00::9/64 via fd00::1", ""},
		"a missing gateway":            {answer{ips: []ipOf{{"10.1.0.9/32", ""}, {"fd00::9/128", ""}}}, "0.1.0", "10.1.0.9/32, fd00::9/128", ""},
		"a link-local gateway":         {answer{ips: []ipOf{{"10.1.0.9/24", "169.254.1.1"}, {"fd00::9/64", "fe80::1"}}}, "0.1.0", "10.1.0.9/24 via 169.254.1.1, fd00::9/64 via fe80::1", ""},
		"two of one family":            {answer{ips: []ipOf{{"10.1.0.9/24", "10.1.0.1"}, {"10.2.0.9/24", "10.2.0.1"}}}, "0.3.0", "10.1.0.9/24 via 10.1.0.1, 10.2.0.9/24 via 10.2.0.1", ""},
		"IPv6 before IPv4":             {answer{ips: []ipOf{{"fd00::9/64", ""}, {"10.1.0.9/24", ""}}}, "0.3.0", "fd00::9/64, 10.1.0.9/24", ""},
		"an interface's MAC":           {answer{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"mac":"` + mac + `"}]`}, "0.3.0", "10.1.0.9/24", mac},
		"an interface's name":          {answer{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"name":"uplink"}]`}, "0.3.0", "10.1.0.9/24", "02:00:00:00:00:01"},
		"an interface's both":          {answer{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"name":"not looked up","mac":"` + mac + `"}]`}, "0.3.0", "10.1.0.9/24", mac},
		"an interface's nothing":       {answer{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{},{"mac":"` + mac + `"}]`}, "0.3.0", "10.1.0.9/24", ""},
		"a sandbox alone":              {answer{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"name":"eth0","mac":"` + mac + `","sandbox":"/ns"}]`}, "0.3.0", "10.1.0.9/24", ""},
		"a sandbox and then an uplink": {answer{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"name":"eth0","mac":"02:00:00:00:00:09","sandbox":"/ns"},{"mac":"` + mac + `"}]`}, "0.3.0", "10.1.0.9/24", mac},
		"two uplinks":                  {answer{ips: []ipOf{{"10.1.0.9/24", ""}}, interfaces: `[{"mac":"` + mac + `"},{"name":"uplink"}]`}, "0.3.0", "10.1.0.9/24", mac},
		"routes and DNS": {answer{
			ips:    []ipOf{{"10.1.0.9/24", "10.1.0.1"}},
			routes: `[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16","gw":"10.1.0.254"}]`,
			dns:    `{"nameservers":["10.1.0.53"],"domain":"example.org","search":["a","b"],"options":["ndots:2"]}`,
		}, "0.1.0", "10.1.0.9/24 via 10.1.0.1", ""},
	} {
		for _, v := range version.All.SupportedVersions() {
			if !atLeast(v, c.since) {
				continue
			}
			t.Run(fmt.Sprintf("%s in %s", name, v), func(t *testing.T) {
				got, err := read([]byte(c.answer.in(v)), v)
				if err != nil {
					t.Fatal(err)
				}
				if text := describe(got); text != c.want {
					t.Errorf("got %s, want %s", text, c.want)
				}
				if got.MasterMAC != c.mac {
					t.Errorf("got MAC %q, want %q", got.MasterMAC, c.mac)
				}
				wantPrevResult(t, got.Raw, v, c.answer)
			})
		}
	}
}

// wantPrevResult checks that the recorded result is one of the version, and
// that it kept the routes and the DNS for CHECK and DEL.
func wantPrevResult(t *testing.T, raw json.RawMessage, v string, a answer) {
	t.Helper()
	prev, err := create.CreateFromBytes(raw)
	if err != nil {
		t.Fatalf("%s does not read back: %v", raw, err)
	}
	if prev.Version() != v {
		t.Errorf("prevResult is of CNI version %s, want %s", prev.Version(), v)
	}
	for _, kept := range []string{"0.0.0.0/0", "192.168.0.0/16", "10.1.0.53", "example.org", "ndots:2"} {
		if strings.Contains(a.routes+a.dns, kept) && !strings.Contains(string(raw), kept) {
			t.Errorf("prevResult %s has lost %s", raw, kept)
		}
	}
}

// Every version that the library converts is in the table above by its own
// list; this is the list, so that a new one is noticed.
func TestTheVersionsOfResultsAreThoseOfTheCNILibrary(t *testing.T) {
	want := "0.1.0 0.2.0 0.3.0 0.3.1 0.4.0 1.0.0 1.1.0"
	if got := strings.Join(version.All.SupportedVersions(), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, v := range version.All.SupportedVersions() {
		got, err := read([]byte(answer{ips: []ipOf{{"10.1.0.9/24", ""}}}.in(v)), v)
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
