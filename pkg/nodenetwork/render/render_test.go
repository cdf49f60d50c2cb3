package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/containernetworking/cni/libcni"

	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// list returns a network configuration list with an ipam object.
func list(ipam string) string {
	return `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":` + ipam + `}]}`
}

// hostLocal returns the list of a host-local with "ranges".
func hostLocal(ranges string) string { return list(`{"type":"host-local","ranges":` + ranges + `}`) }

func worker(podCIDRs ...string) Node {
	return Node{
		Name: "worker-1", UID: "uid-1", PodCIDRs: podCIDRs,
		Labels:      map[string]string{"zone": "a", "topology.kubernetes.io/zone": "b"},
		Annotations: map[string]string{"example.com/range": "10.9.1.0/24", "example.com/mtu": "1450", "example.com/sets": `[[{"subnet":"10.9.2.0/24"}]]`, "example.com/offload": "true"},
	}
}

func options(t testing.TB) Options {
	t.Helper()
	profiles, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Profiles: profiles}
}

// ipamOf returns the ipam object of a rendered list.
func ipamOf(t testing.TB, rendered []byte) string {
	t.Helper()
	n, err := cniconf.ParseList(rendered)
	if err != nil {
		t.Fatalf("%v: %s", err, rendered)
	}
	var plugin struct{ IPAM json.RawMessage }
	if err := json.Unmarshal(n.PluginConfig, &plugin); err != nil {
		t.Fatal(err)
	}
	return string(plugin.IPAM)
}

func TestRender(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		node     Node
		want     string
	}{
		"IPv4":                 {hostLocal(`{{ranges}}`), worker("10.244.1.0/24"), `{"type":"host-local","ranges":[[{"subnet":"10.244.1.0/24"}]]}`},
		"IPv6":                 {hostLocal(`{{ranges}}`), worker("fd00:10:244:1::/64"), `{"type":"host-local","ranges":[[{"subnet":"fd00:10:244:1::/64"}]]}`},
		"dual stack":           {hostLocal(`{{ranges}}`), worker("10.244.1.0/24", "fd00::/64"), `{"type":"host-local","ranges":[[{"subnet":"10.244.1.0/24"}],[{"subnet":"fd00::/64"}]]}`},
		"IPv6 first":           {hostLocal(`{{ranges}}`), worker("fd00::/64", "10.244.1.0/24"), `{"type":"host-local","ranges":[[{"subnet":"fd00::/64"}],[{"subnet":"10.244.1.0/24"}]]}`},
		"host bits":            {hostLocal(`{{ranges}}`), worker("10.244.1.7/24"), `{"type":"host-local","ranges":[[{"subnet":"10.244.1.0/24"}]]}`},
		"one of them":          {hostLocal(`[[{"subnet":"{{index .PodCIDRs 1}}"}]]`), worker("10.244.1.0/24", "fd00::/64"), `{"type":"host-local","ranges":[[{"subnet":"fd00::/64"}]]}`},
		"each of them":         {hostLocal(`[{{range $i, $r := .PodCIDRs}}{{if $i}},{{end}}[{"subnet":{{json $r}}}]{{end}}]`), worker("10.244.1.0/24", "fd00::/64"), `{"type":"host-local","ranges":[[{"subnet":"10.244.1.0/24"}],[{"subnet":"fd00::/64"}]]}`},
		"annotation":           {hostLocal(`[[{"subnet":"{{index .Annotations "example.com/range"}}"}]]`), worker(), `{"type":"host-local","ranges":[[{"subnet":"10.9.1.0/24"}]]}`},
		"annotation with sets": {hostLocal(`{{index .Annotations "example.com/sets"}}`), worker(), `{"type":"host-local","ranges":[[{"subnet":"10.9.2.0/24"}]]}`},
		"number and bool":      {list(`{"type":"host-local","ranges":{{ranges}},"x":{{index .Annotations "example.com/mtu"}},"y":{{index .Annotations "example.com/offload"}}}`), worker("10.244.1.0/24"), `{"type":"host-local","ranges":[[{"subnet":"10.244.1.0/24"}]],"x":1450,"y":true}`},
		"label and name":       {list(`{"type":"calico-ipam","z":"{{.Labels.zone}}","n":{{json .NodeName}}}`), worker(), `{"type":"calico-ipam","z":"a","n":"worker-1"}`},
		"large number":         {list(`{"type":"x","n":12345678901234567890}`), worker(), `{"type":"x","n":12345678901234567890}`},
		"cluster-wide, fixed":  {list(`{"type":"whereabouts","range":"10.0.0.0/16"}`), worker(), `{"type":"whereabouts","range":"10.0.0.0/16"}`},
		"part of a fixed one":  {hostLocal(`[[{"subnet":"10.0.0.0/8","rangeStart":"{{index .Annotations "example.com/range"}}"}]]`), worker(), `{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/8","rangeStart":"10.9.1.0/24"}]]}`},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := Render(c.template, c.node, options(t))
			if err != nil {
				t.Fatal(err)
			}
			if got := ipamOf(t, rendered); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if !IsOf(rendered, c.node, options(t)) {
				t.Errorf("it is not of its node: %s", rendered)
			}
			again, err := Render(c.template, c.node, options(t))
			if err != nil || string(again) != string(rendered) {
				t.Errorf("rendered again: %s, %v; want the same", again, err)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		want     []string
	}{
		"syntax":                 {`{{ranges`, []string{"pods.conflist:1", "unclosed action"}},
		"unknown field":          {`{{.Ranges}}`, []string{"Ranges"}},
		"unknown function":       {`{{podcidrs}}`, []string{`function "podcidrs" not defined`}},
		"unknown label":          {`{{.Labels.rack}}`, []string{`map has no entry for key "rack"`}},
		"unknown label, index":   {`{{index .Labels "rack"}}`, []string{`the Node has no label or annotation "rack"`}},
		"index of nothing":       {`{{index .PodCIDRs 2}}`, []string{"no element 2; the list has 1, counted from 0"}},
		"index by a wrong type":  {`{{index .Labels 2}}`, []string{"key 2; expected text in double quotes"}},
		"index of text":          {`{{index .NodeName 2}}`, []string{"expected .Labels, .Annotations or .PodCIDRs"}},
		"definition":             {`{{define "x"}}{{template "x"}}{{end}}{{template "x"}}`, []string{"define or block"}},
		"endless":                {`{{range 2000000}}0123456789{{end}}`, []string{"more than 1048576 bytes"}},
		"empty":                  {``, []string{"not a CNI network configuration list", "unexpected end of JSON"}},
		"not JSON":               {`name: pods`, []string{"not a CNI network configuration list"}},
		"two objects":            {hostLocal(`{{ranges}}`) + `{}`, []string{"not a CNI network configuration list"}},
		"single plugin":          {`{"name":"pods","type":"cilium-cni","ipam":{"type":"host-local"}}`, []string{"not a CNI network configuration list"}},
		"no name":                {`{"plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","ranges":{{ranges}}}}]}`, []string{"name"}},
		"no plugin delegates":    {`{"name":"pods","plugins":[{"type":"cilium-cni"}]}`, []string{"no plugin of its chain sets ipam.type"}},
		"ranges of a wrong form": {hostLocal(`"{{index .PodCIDRs 0}}"`), []string{"ipam object", "expected what plugin host-local documents"}},
		"fails elsewhere":        {hostLocal(`[[{"subnet":"{{index .PodCIDRs 0}}"}{{if eq .NodeName "worker-1"}}]{{end}}]`), []string{"unknown", "--single-node"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Render(c.template, worker("10.244.1.0/24"), options(t))
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v; want %q in it", err, want)
				}
			}
			if errors.Is(err, ErrNoPodCIDRs) {
				t.Errorf("got %v; want a fault of the template", err)
			}
		})
	}
}

func TestNoPodCIDRs(t *testing.T) {
	for name, template := range map[string]string{
		"ranges":   hostLocal(`{{ranges}}`),
		"list":     hostLocal(`[{{range .PodCIDRs}}[{"subnet":"{{.}}"}]{{end}}]`),
		"index":    hostLocal(`[[{"subnet":"{{index .PodCIDRs 0}}"}]]`),
		"if, else": hostLocal(`{{if .PodCIDRs}}{{ranges}}{{else}}[]{{end}}`),
		"with":     hostLocal(`[{{with .PodCIDRs}}{{end}}]`),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Render(template, worker(), options(t)); !errors.Is(err, ErrNoPodCIDRs) {
				t.Errorf("got %s, %v; want ErrNoPodCIDRs", got, err)
			}
		})
	}
}

func TestMalformedPodCIDR(t *testing.T) {
	_, err := Render(hostLocal(`{{ranges}}`), worker("10.244.1.0/24", "fd00::"), options(t))
	if err == nil || !strings.Contains(err.Error(), `has "fd00::"; expected a range`) {
		t.Errorf("got %v; want the range and what is expected", err)
	}
}

func TestSharedRange(t *testing.T) {
	const fixed = `[[{"subnet":"10.0.0.0/16"}]]`
	for name, template := range map[string]string{
		"ranges":              hostLocal(fixed),
		"subnet":              list(`{"type":"host-local","subnet":"10.0.0.0/16"}`),
		"static":              list(`{"type":"static","addresses":[{"address":"10.0.0.9/16"}]}`),
		"no range":            list(`{"type":"host-local"}`),
		"of one family":       hostLocal(`[[{"subnet":"{{index .PodCIDRs 0}}"}],[{"subnet":"fd00::/64"}]]`),
		"another network":     strings.Replace(hostLocal(fixed), "pods", "pods-{{.NodeName}}", 1),
		"another directory":   list(`{"type":"host-local","dataDir":"/x/{{.NodeName}}","ranges":` + fixed + `}`),
		"another gateway":     hostLocal(`[[{"subnet":"10.0.0.0/16","gateway":"{{.NodeName}}"}]]`),
		"else":                hostLocal(`[[{"subnet":"10.0.0.0/16"}]{{range .PodCIDRs}},[{"subnet":"{{.}}"}]{{end}}]`),
		"spelling of a range": hostLocal(`[[{"subnet" : "10.0.0.0/16"}]]`),
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			_, err := Render(template, worker("10.244.1.0/24"), o)
			var shared *SharedRangeError
			if !errors.As(err, &shared) || !strings.Contains(err.Error(), "--single-node") || !strings.Contains(err.Error(), "{{ranges}}") {
				t.Fatalf("got %v; want a SharedRangeError with the remedy", err)
			}
			o.SingleNode = true
			rendered, err := Render(template, worker("10.244.1.0/24"), o)
			if err != nil {
				t.Fatalf("with SingleNode: %v", err)
			}
			if !IsOf(rendered, worker("10.244.1.0/24"), o) || IsOf(rendered, worker("10.244.1.0/24"), options(t)) {
				t.Error("it counts as this node's without SingleNode, or does not with it")
			}
		})
	}
}

func TestIsOf(t *testing.T) {
	rendered, err := Render(hostLocal(`{{ranges}}`), worker("10.244.1.0/24"), options(t))
	if err != nil {
		t.Fatal(err)
	}
	recreated, renamed, without := worker("10.244.1.0/24"), worker("10.244.1.0/24"), worker("10.244.1.0/24")
	recreated.UID, renamed.Name, without.UID = "uid-2", "worker-2", ""
	for name, n := range map[string]Node{"other podCIDRs": worker("10.244.2.0/24"), "more podCIDRs": worker("10.244.1.0/24", "fd00::/64"), "recreated": recreated, "renamed": renamed, "no UID": without} {
		if IsOf(rendered, n, options(t)) {
			t.Errorf("%s: the configuration counts as that of the node", name)
		}
	}
	if IsOf([]byte(hostLocal(`[]`)), worker(), options(t)) || IsOf(nil, worker(), options(t)) {
		t.Error("a configuration without a node counts as that of the node")
	}
}

func TestAnotherText(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/24": "10.0.1.0/24", "fd00::/64": "fd00:0:0:1::/64", "0.0.0.0/0": "203.0.113.0/24", "10.0.0.1": "10.0.0.0", "fd00::1": "fd00::",
		"7": "6", "true": "false", "": "-other", "zone": "zone-other", `["10.0.0.1",7]`: `["10.0.0.0",8]`, `{"a":{"b":"c","d":true,"e":null}}`: `{"a":{"b":"c-other","d":false,"e":null}}`, "null": "null-other",
	} {
		if got := anotherText(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzRender renders any template: the result is a list that libcni accepts, of this node, with no
// range that another node gets.
func FuzzRender(f *testing.F) {
	for _, template := range []string{
		hostLocal(`{{ranges}}`), hostLocal(`[[{"subnet":"10.0.0.0/16"}]]`), hostLocal(`[{{range $i, $r := .PodCIDRs}}{{if $i}},{{end}}[{"subnet":{{json $r}}}]{{end}}]`),
		list(`{"type":"static","addresses":[{"address":"{{index .Annotations "example.com/range"}}"}]}`), list(`{"type":"{{.Labels.zone}}"}`), `{{define "x"}}{{end}}`, `{`,
	} {
		f.Add(template, "10.244.1.0/24", "fd00::/64", "v")
	}
	f.Fuzz(func(t *testing.T, template, first, second, value string) {
		if strings.Count(template, "range") > 1 && strings.ContainsAny(template, "123456789") && !strings.Contains(template, "PodCIDRs") {
			t.Skip("nested loops over numbers take long")
		}
		if !utf8.ValidString(first + second) {
			t.Skip("not text of the API server")
		}
		n, o := worker(first, second), options(t)
		n.Annotations["value"], n.Labels["value"] = value, value
		rendered, err := Render(template, n, o)
		if err != nil {
			return
		}
		if _, err := libcni.NetworkConfFromBytes(rendered); err != nil || !json.Valid(rendered) {
			t.Fatalf("libcni refuses %s: %v", rendered, err)
		}
		if !IsOf(rendered, n, o) {
			t.Fatalf("it is not of its node: %s", rendered)
		}
		other := n
		other.Name, other.UID, other.PodCIDRs = "worker-2", "uid-2", []string{"192.168.77.0/24", "fd77::/64"}
		if IsOf(rendered, other, o) {
			t.Fatalf("it is of another node: %s", rendered)
		}
	})
}

// FuzzRanges renders the podCIDRs of any node.
func FuzzRanges(f *testing.F) {
	f.Add("10.244.1.0/24", "fd00::/64")
	f.Add("::ffff:10.0.0.0/120", "10.0.0.1/32")
	f.Add("0.0.0.0/0", "fe80::%eth0/64")
	f.Fuzz(func(t *testing.T, first, second string) {
		rendered, err := Render(hostLocal(`{{ranges}}`), worker(first, second), options(t))
		a, firstErr := netip.ParsePrefix(first)
		b, secondErr := netip.ParsePrefix(second)
		if err != nil {
			if firstErr == nil && secondErr == nil {
				t.Fatalf("%q, %q: %v", first, second, err)
			}
			return
		}
		want := fmt.Sprintf(`{"type":"host-local","ranges":[[{"subnet":%q}],[{"subnet":%q}]]}`, a.Masked(), b.Masked())
		if got := ipamOf(t, rendered); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	})
}
