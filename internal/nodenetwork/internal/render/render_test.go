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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// list returns a network configuration list with an ipam object.
func list(ipam string) string {
	return `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":` + ipam + `}]}`
}

func hostLocal(ranges string) string { return list(`{"type":"host-local","ranges":` + ranges + `}`) }

func worker(podCIDRs ...string) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
	n.ObjectMeta = metav1.ObjectMeta{
		Name: "worker-1", UID: "uid-1",
		Labels:      map[string]string{"zone": "a", "rack": "7", "topology.kubernetes.io/zone": "b"},
		Annotations: map[string]string{"example.com/range": "10.9.1.0/24", "example.com/mtu": "1450", "example.com/version": "1.0.0", "example.com/json": `"10.9.1.0/24"`, "example.com/large": "12345678901234567890", "example.com/variable": "${nodeName}", "example.com/sets": `[[{"subnet":"10.9.2.0/24"}]]`, "example.com/offload": "true"},
	}
	return n
}

func options(t testing.TB) Options {
	t.Helper()
	profiles, err := profile.Load()
	check.Must(t, err)
	return Options{Profiles: profiles}
}

func ipamOf(t testing.TB, rendered []byte) string {
	t.Helper()
	n, err := cniconf.ParseList(rendered)
	if err != nil {
		t.Fatalf("%v: %s", err, rendered)
	}
	var plugin struct{ IPAM json.RawMessage }
	check.Must(t, json.Unmarshal(n.PluginConfig, &plugin))
	return string(plugin.IPAM)
}

// sorted returns JSON with the keys of objects in order.
func sorted(t *testing.T, text string) string {
	t.Helper()
	value, err := parse(text)
	check.Must(t, err)
	text, err = asJSON(value)
	check.Must(t, err)
	return text
}

func TestRender(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		node     *corev1.Node
		want     string
	}{
		"IPv4":                 {hostLocal(`"${ranges}"`), worker("10.244.1.0/24"), `{"type":"host-local","ranges":[[{"subnet":"10.244.1.0/24"}]]}`},
		"dual stack":           {hostLocal(`"${ranges}"`), worker("10.244.1.0/24", "fd00::/64"), `{"type":"host-local","ranges":[[{"subnet":"10.244.1.0/24"}],[{"subnet":"fd00::/64"}]]}`},
		"one of them":          {hostLocal(`[[{"subnet":"${podCIDRs[1]}"}]]`), worker("10.244.1.0/24", "fd00::/64"), `{"type":"host-local","ranges":[[{"subnet":"fd00::/64"}]]}`},
		"all of them":          {list(`{"type":"calico-ipam","ipv4_pools":"${podCIDRs}"}`), worker("10.244.1.0/24", "fd00::/64"), `{"type":"calico-ipam","ipv4_pools":["10.244.1.0/24","fd00::/64"]}`},
		"annotation":           {hostLocal(`[[{"subnet":"${annotations[example.com/range]}"}]]`), worker(), `{"type":"host-local","ranges":[[{"subnet":"10.9.1.0/24"}]]}`},
		"annotation with sets": {hostLocal(`"${json:annotations[example.com/sets]}"`), worker(), `{"type":"host-local","ranges":[[{"subnet":"10.9.2.0/24"}]]}`},
		"annotation with text": {hostLocal(`[[{"subnet":"${json:annotations[example.com/json]}"}]]`), worker(), `{"type":"host-local","ranges":[[{"subnet":"10.9.1.0/24"}]]}`},
		"number and bool":      {list(`{"type":"calico-ipam","x":"${json:annotations[example.com/mtu]}","y":"${json:annotations[example.com/offload]}"}`), worker(), `{"type":"calico-ipam","x":1450,"y":true}`},
		"label and name":       {list(`{"type":"calico-ipam","z":"${labels[topology.kubernetes.io/zone]}","n":"${nodeName}"}`), worker(), `{"type":"calico-ipam","z":"b","n":"worker-1"}`},
		"label as JSON":        {list(`{"type":"calico-ipam","rack":"${json:labels[rack]}"}`), worker(), `{"type":"calico-ipam","rack":7}`},
		"in longer strings":    {list(`{"type":"calico-ipam","z":"zone-${labels[zone]}/${nodeName}","a":["net ${json:annotations[example.com/json]}","${podCIDRs[0]},"]}`), worker("10.244.1.0/24"), `{"type":"calico-ipam","z":"zone-a/worker-1","a":["net 10.9.1.0/24","10.244.1.0/24,"]}`},
		"two variables":        {list(`{"type":"calico-ipam","z":"${labels[zone]}${nodeName}"}`), worker(), `{"type":"calico-ipam","z":"aworker-1"}`},
		"literal":              {list(`{"type":"calico-ipam","z":"$${nodeName} $$${x} $5 $ ${nodeName}$${","e":"$${"}`), worker(), `{"type":"calico-ipam","z":"${nodeName} $${x} $5 $ worker-1${","e":"${"}`},
		"escaped in JSON":      {list(`{"type":"calico-ipam","z":"\u0024{nodeName} \"\\","e":"\"${nodeName}\"\n"}`), worker(), `{"type":"calico-ipam","z":"worker-1 \"\\","e":"\"worker-1\"\n"}`},
		"value with a variable": {
			list(`{"type":"calico-ipam","z":"${annotations[example.com/variable]}","e":"x${annotations[example.com/variable]}"}`), worker(),
			`{"type":"calico-ipam","z":"${nodeName}","e":"x${nodeName}"}`,
		},
		"large number":        {list(`{"type":"x","n":12345678901234567890,"a":"${json:annotations[example.com/large]}"}`), worker(), `{"type":"x","n":12345678901234567890,"a":12345678901234567890}`},
		"cluster-wide, fixed": {list(`{"type":"whereabouts","range":"10.0.0.0/16"}`), worker(), `{"type":"whereabouts","range":"10.0.0.0/16"}`},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := Render(c.template, c.node, options(t))
			check.Must(t, err)
			if got := ipamOf(t, rendered); got != sorted(t, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if !IsOf(rendered, c.node, options(t)) {
				t.Errorf("not rendered for its node: %s", rendered)
			}
			again, err := Render(c.template, c.node, options(t))
			if err != nil || string(again) != string(rendered) {
				t.Errorf("rendered again: %s, %v; want the same", again, err)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	calico := func(value string) string { return list("{\n\"type\":\"calico-ipam\",\n\"x\":\"" + value + "\"}") }
	for name, c := range map[string]struct {
		template string
		want     []string
	}{
		"unclosed":             {calico(`a ${nodeName`), []string{`"${nodeName" has no closing }`, "$${"}},
		"opened at the end":    {calico(`${`), []string{`"${" has no closing }`}},
		"unknown variable":     {calico(`${podcidrs}`), []string{"${podcidrs}: unknown variable", "${podCIDRs}"}},
		"empty variable":       {calico(`${}`), []string{"${}: unknown variable"}},
		"unclosed key":         {calico(`${labels[zone}`), []string{"unknown variable"}},
		"no key":               {calico(`${labels}`), []string{"unknown variable"}},
		"unknown label":        {calico(`${labels[rack2]}`), []string{`${labels[rack2]}: the Node has no label "rack2"`, "add it to the Node"}},
		"label in quotes":      {calico(`x ${labels['zone']}`), []string{`no label "'zone'"`, "without quotes"}},
		"unknown annotation":   {calico(`${json:annotations[x]}`), []string{`the Node has no annotation "x"`}},
		"annotation not JSON":  {calico(`${json:annotations[example.com/range]}`), []string{"${json:annotations[example.com/range]}: its text is not JSON", "without json:"}},
		"index too large":      {calico(`${podCIDRs[1]}`), []string{"${podCIDRs[1]}: the Node has the podCIDRs 10.244.1.0/24; expected an index from 0 to 0"}},
		"negative index":       {calico(`${podCIDRs[-1]}`), []string{"expected an index from 0 to 0"}},
		"index not a number":   {calico(`${podCIDRs[first]}`), []string{"expected an index from 0 to 0"}},
		"list in a string":     {calico(`x ${podCIDRs}`), []string{`${podCIDRs} is ["10.244.1.0/24"], in a longer string; expected a string as its value`}},
		"number in a string":   {calico(`mtu ${json:annotations[example.com/mtu]}`), []string{"is 1450, in a longer string"}},
		"null in a string":     {calico(`x ${json:annotations[example.com/null]}`), []string{"is null, in a longer string"}},
		"variable in a key":    {list(`{"type":"calico-ipam","${nodeName}":1}`), []string{`the key "${nodeName}" has a variable; expected variables in values only`}},
		"literal in a key":     {list("{\"type\":\"calico-ipam\",\n\"$${x\"\n :1}"), []string{"the key"}},
		"fault after podCIDRs": {hostLocal(`["${podCIDRs[0]}","${labels[rack2]}"]`), []string{`no label "rack2"`}},
		"empty":                {``, []string{"line 1: unexpected end of JSON input; expected a JSON document"}},
		"not JSON":             {`name: pods`, []string{"line 1: invalid character", "expected a JSON document"}},
		"not in quotes":        {hostLocal("\n${ranges}\n"), []string{"line 2: invalid character '$'", `"ranges": "${ranges}"`}},
		"unclosed string":      {"{\n\"name\":\"x\n}", []string{"line 2: invalid character '\\n' in string literal"}},
		"two objects":          {hostLocal(`"${ranges}"`) + "\n{}", []string{"line 2: invalid character '{' after top-level value"}},
		"large value":          {calico(strings.Repeat("${annotations[example.com/long]}", 20)), []string{"more than 1048576 bytes"}},
		"large values":         {list(`{"type":"calico-ipam","x":[` + strings.Repeat(`"${annotations[example.com/long]}",`, 20) + `1]}`), []string{"more than 1048576 bytes"}},
		"indentation":          {list(`{"type":"calico-ipam","x":[` + strings.Repeat("1,", 400<<10) + `1]}`), []string{"more than 1048576 bytes"}},
		"text":                 {`"${nodeName}"`, []string{"not a CNI network configuration list"}},
		"single plugin":        {`{"name":"pods","type":"cilium-cni","ipam":{"type":"host-local"}}`, []string{"not a CNI network configuration list"}},
		"no name":              {`{"plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","ranges":"${ranges}"}}]}`, []string{"name"}},
		"no plugin delegates":  {`{"name":"pods","plugins":[{"type":"cilium-cni"}]}`, []string{"no plugin of its chain sets ipam.type"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := worker("10.244.1.0/24")
			n.Annotations["example.com/long"], n.Annotations["example.com/null"] = strings.Repeat("x", 64<<10), "null"
			_, err := Render(c.template, n, options(t))
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
		"ranges":           hostLocal(`"${ranges}"`),
		"list":             list(`{"type":"calico-ipam","ipv4_pools":"${podCIDRs}"}`),
		"index":            hostLocal(`[[{"subnet":"${podCIDRs[0]}"}]]`),
		"index too large":  hostLocal(`[[{"subnet":"${podCIDRs[7]}"}]]`),
		"in longer string": hostLocal(`[[{"subnet":"${podCIDRs[0]} "}]]`),
		"with others":      hostLocal(`["${ranges}","${nodeName}","${podCIDRs}"]`),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Render(template, worker(), options(t)); !errors.Is(err, ErrNoPodCIDRs) {
				t.Errorf("got %s, %v; want ErrNoPodCIDRs", got, err)
			}
		})
	}
}

func TestMalformedPodCIDR(t *testing.T) {
	_, err := Render(hostLocal(`"${ranges}"`), worker("10.244.1.0/24", "fd00::"), options(t))
	if err == nil || !strings.Contains(err.Error(), `has "fd00::"; expected a range`) {
		t.Errorf("got %v; want the range and what is expected", err)
	}
}

func TestSharedRange(t *testing.T) {
	const fixed = `[[{"subnet":"10.0.0.0/16"}]]`
	for name, template := range map[string]string{
		"ranges":               hostLocal(fixed),
		"subnet":               list(`{"type":"host-local","subnet":"10.0.0.0/16"}`),
		"static":               list(`{"type":"static","addresses":[{"address":"10.0.0.9/16"}]}`),
		"no range":             list(`{"type":"host-local"}`),
		"of one family":        hostLocal(`[[{"subnet":"${podCIDRs[0]}"}],[{"subnet":"fd00::/64"}]]`),
		"another spelling":     list(`{"type":"host-local","RANGES":[[{"SubNet":"10.0.0.0/16"}]]}`),
		"beside ranges":        list(`{"type":"host-local","ranges":"${ranges}","subnet":"10.0.0.0/16"}`),
		"literal text":         hostLocal(`[[{"subnet":"10.0.0.0/16$${"}]]`),
		"type from a variable": list(`{"type":"${annotations[example.com/type]}","subnet":"10.0.0.0/16"}`),
		"another network":      strings.Replace(hostLocal(fixed), "pods", "pods-${nodeName}", 1),
		"another directory":    list(`{"type":"host-local","dataDir":"/x/${nodeName}","ranges":` + fixed + `}`),
		"another gateway":      hostLocal(`[[{"subnet":"10.0.0.0/16","gateway":"${nodeName}"}]]`),
		"a needless field":     list(`{"type":"static","addresses":[{"address":"10.0.0.9/16","ranges":"${ranges}"}]}`),
		"spelling of a range":  hostLocal(`[[{"subnet" : "10.0.0.0/16"}]]`),
		"common start":         hostLocal(`[[{"subnet":"10.0.0.0/16","rangeStart":"10.0.0.10","rangeEnd":"${annotations[example.com/end]}"}]]`),
		"through the daemon":   list(`{"type":"delegated-ipam-cni","delegate":{"type":"host-local","ranges":` + fixed + `}}`),
		"common end":           hostLocal(`[[{"subnet":"10.0.0.0/16","rangeStart":"${annotations[example.com/start]}"}]]`),
	} {
		t.Run(name, func(t *testing.T) {
			o, n := options(t), worker("10.244.1.0/24")
			n.Annotations["example.com/type"] = "host-local"
			n.Annotations["example.com/start"], n.Annotations["example.com/end"] = "10.0.0.10", "10.0.0.19"
			_, err := Render(template, n, o)
			var shared *SharedRangeError
			if !errors.As(err, &shared) || !strings.Contains(err.Error(), "--single-node") || !strings.Contains(err.Error(), "${ranges}") {
				t.Fatalf("got %v; want a SharedRangeError with the remedy", err)
			}
			o.SingleNode = true
			rendered, err := Render(template, n, o)
			if err != nil {
				t.Fatalf("with SingleNode: %v", err)
			}
			if !IsOf(rendered, n, o) || IsOf(rendered, n, options(t)) {
				t.Error("counts as that of this node without SingleNode, or not with SingleNode")
			}
		})
	}
}

// Each range has a variable of the node.
func TestOwnRange(t *testing.T) {
	n := worker("10.244.1.0/24", "fd00:1::/64")
	n.Annotations = map[string]string{"start": "10.0.0.10", "end": "10.0.0.19", "next": "10.0.0.11", "net": "10.0.2.0", "part": "10.0.3", "number": "4", "from": "100", "to": "150", "set": `[{"subnet":"10.0.5.0/24"}]`, "ipam": `{"type":"host-local","subnet":"10.0.6.0/24"}`}
	for name, template := range map[string]string{
		"podCIDRs":              hostLocal(`"${ranges}"`),
		"part of a range":       hostLocal(`[[{"subnet":"10.0.0.0/16","rangeStart":"${annotations[start]}","rangeEnd":"${annotations[end]}"}]]`),
		"numbers in a range":    hostLocal(`[[{"subnet":"10.0.0.0/16","rangeStart":"10.0.0.${annotations[from]}","rangeEnd":"10.0.0.${annotations[to]}"}]]`),
		"number of a range":     hostLocal(`[[{"subnet":"10.0.${annotations[number]}.0/23"}]]`),
		"address of a range":    hostLocal(`[[{"subnet":"${annotations[net]}/23"}]]`),
		"part of an address":    hostLocal(`[[{"subnet":"${annotations[part]}.0/24"}]]`),
		"static":                list(`{"type":"static","addresses":[{"address":"${annotations[start]}/16"}]}`),
		"one set":               hostLocal(`["${json:annotations[set]}",[{"subnet":"${podCIDRs[1]}"}]]`),
		"whole object":          list(`"${json:annotations[ipam]}"`),
		"through the daemon":    list(`{"type":"delegated-ipam-cni","delegate":{"type":"host-local","ranges":"${ranges}"}}`),
		"whole delegate":        list(`{"type":"delegated-ipam-cni","delegate":"${json:annotations[ipam]}"}`),
		"beside other plugins":  strings.Replace(hostLocal(`"${ranges}"`), `}]}`, `},{"type":"portmap"}]}`, 1),
		"static, two addresses": list(`{"type":"static","addresses":[{"address":"${annotations[start]}/16"},{"address":"${annotations[next]}/16"}]}`),
	} {
		if _, err := Render(template, n, options(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIsOf(t *testing.T) {
	rendered, err := Render(hostLocal(`"${ranges}"`), worker("10.244.1.0/24"), options(t))
	check.Must(t, err)
	recreated, renamed, without := worker("10.244.1.0/24"), worker("10.244.1.0/24"), worker("10.244.1.0/24")
	recreated.UID, renamed.Name, without.UID = "uid-2", "worker-2", ""
	for name, n := range map[string]*corev1.Node{"other podCIDRs": worker("10.244.2.0/24"), "more podCIDRs": worker("10.244.1.0/24", "fd00::/64"), "recreated": recreated, "renamed": renamed, "no UID": without} {
		if IsOf(rendered, n, options(t)) {
			t.Errorf("%s: the configuration counts as that of the node", name)
		}
	}
	rendered, err = Render(hostLocal(`[[{"subnet":"${annotations[example.com/range]}","gateway":"${labels[zone]}"}]]`), worker(), options(t))
	check.Must(t, err)
	other, removed, relabelled := worker(), worker(), worker()
	other.Annotations["example.com/range"], removed.Annotations, relabelled.Labels["zone"] = "10.9.2.0/24", nil, "b"
	for name, n := range map[string]*corev1.Node{"another range": other, "removed": removed, "another label": relabelled} {
		if IsOf(rendered, n, options(t)) {
			t.Errorf("%s: the configuration counts as that of the node", name)
		}
	}
	unrelated := worker()
	unrelated.Labels["rack"] = "8"
	if !IsOf(rendered, unrelated, options(t)) {
		t.Error("another label: the configuration does not count as that of the node")
	}
	if IsOf([]byte(hostLocal(`[]`)), worker(), options(t)) || IsOf(nil, worker(), options(t)) {
		t.Error("a configuration without a node counts as that of the node")
	}
}

// FuzzRender renders any template: libcni accepts the result, and it counts for its node only.
func FuzzRender(f *testing.F) {
	for _, template := range []string{
		hostLocal(`"${ranges}"`), hostLocal(`[[{"subnet":"10.0.0.0/16"}]]`), hostLocal(`[[{"subnet":"${podCIDRs[1]}"}]]`), `{`,
		list(`{"type":"static","addresses":[{"address":"${annotations[example.com/range]}"}]}`), list(`{"type":"${labels[zone]}"}`),
		list(`{"type":"host-local","x":"$${ ${annotations[value]} ${nodeName}","ranges":"${json:annotations[value]}"}`), list(`{"type":"x","${nodeName":["${json:labels[value]}"]}`),
	} {
		f.Add(template, "10.244.1.0/24", "fd00::/64", "v")
	}
	f.Fuzz(func(t *testing.T, template, first, second, value string) {
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
			t.Fatalf("not rendered for its node: %s", rendered)
		}
		other := n.DeepCopy()
		other.Name, other.UID, other.Spec.PodCIDRs = "worker-2", "uid-2", []string{"192.168.77.0/24", "fd77::/64"}
		if IsOf(rendered, other, o) {
			t.Fatalf("counts as that of another node: %s", rendered)
		}
	})
}

// FuzzRanges renders the podCIDRs of any node.
func FuzzRanges(f *testing.F) {
	f.Add("10.244.1.7/24", "fd00::/64")
	f.Add("fd00:10:244:1::/64", "10.244.1.0/24")
	f.Add("::ffff:10.0.0.0/120", "10.0.0.1/32")
	f.Add("0.0.0.0/0", "fe80::%eth0/64")
	f.Add("0.0.0.0/0", "0000::/0")
	f.Fuzz(func(t *testing.T, first, second string) {
		rendered, err := Render(hostLocal(`"${ranges}"`), worker(first, second), options(t))
		a, firstErr := netip.ParsePrefix(first)
		b, secondErr := netip.ParsePrefix(second)
		if err != nil {
			if firstErr == nil && secondErr == nil {
				t.Fatalf("%q, %q: %v", first, second, err)
			}
			return
		}
		want := fmt.Sprintf(`{"ranges":[[{"subnet":%q}],[{"subnet":%q}]],"type":"host-local"}`, a.Masked(), b.Masked())
		if got := ipamOf(t, rendered); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	})
}
