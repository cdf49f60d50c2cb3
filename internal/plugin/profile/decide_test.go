package profile

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// load returns the embedded profiles.
func load(t *testing.T) Set {
	t.Helper()
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestConclusions(t *testing.T) {
	type conclusions struct{ delBeforeAdd, singleUseIDs, onNode, hasStatus bool }
	set := load(t)
	for pluginType, want := range map[string]conclusions{
		"host-local": {true, false, true, true},
		"static":     {false, false, true, true},
		"azure-ipam": {false, true, false, false},
		Unknown:      {true, false, false, true},
	} {
		p := set.For(pluginType)
		if got := (conclusions{p.DelBeforeAdd(), p.SingleUseIDs(), p.OnNode(), p.HasStatus()}); got != want {
			t.Errorf("%s: got %+v, want %+v", pluginType, got, want)
		}
	}
}

func TestStateDir(t *testing.T) {
	hostLocal := Profile{StateDirKey: "dataDir", DefaultStateDir: "/var/x"}
	for name, c := range map[string]struct {
		profile  Profile
		ipam     string
		dir, key string
	}{
		"set":               {hostLocal, `{"dataDir":"/y"}`, "/y", "dataDir"},
		"not set":           {hostLocal, `{}`, "/var/x", "dataDir"},
		"empty":             {hostLocal, `{"dataDir":""}`, "/var/x", "dataDir"},
		"not a text":        {hostLocal, `{"dataDir":7}`, "/var/x", "dataDir"},
		"ipam not JSON":     {hostLocal, `{`, "/var/x", "dataDir"},
		"no state in files": {Profile{}, `{"dataDir":"/y"}`, "", ""},
	} {
		if dir, key := c.profile.StateDir([]byte(c.ipam)); dir != c.dir || key != c.key {
			t.Errorf("%s: got %q, %q; want %q, %q", name, dir, key, c.dir, c.key)
		}
	}
}

func TestPod(t *testing.T) {
	synthetic := Pod{"delegated-ipam", "id"}
	for name, c := range map[string]struct {
		identity PodIdentity
		owner    string
		want     Pod
	}{
		"none":                       {PodIdentityNone, "default/web-0", Pod{}},
		"synthetic":                  {PodIdentitySynthetic, "default/web-0", synthetic},
		"given":                      {PodIdentityGiven, "default/web-0", Pod{"default", "web-0"}},
		"given, with dots":           {PodIdentityGiven, "a-b/web.0", Pod{"a-b", "web.0"}},
		"given, not a pod":           {PodIdentityGiven, "health", synthetic},
		"given, owner without name":  {PodIdentityGiven, "default/", synthetic},
		"given, owner two slashes":   {PodIdentityGiven, "a/b/c", synthetic},
		"given, owner adds a key":    {PodIdentityGiven, "default/web;IP=10.1.0.7", synthetic},
		"given, owner in upper case": {PodIdentityGiven, "Default/Web", synthetic},
	} {
		got, ok := Profile{PodIdentity: c.identity}.Pod(c.owner, "id")
		if got != c.want || ok != (c.want != Pod{}) {
			t.Errorf("%s: got %v, %v; want %v", name, got, ok, c.want)
		}
	}
}

func TestRequired(t *testing.T) {
	p := Profile{Requires: []Requirement{{Kind: RequireFile, Key: "conf", Paths: []string{"/a", "/b"}}, {Kind: RequireDirectory, Paths: []string{"/c"}}}}
	for name, c := range map[string]struct {
		ipam string
		want []string
	}{
		"not set":    {`{}`, []string{"/a", "/b"}},
		"set":        {`{"conf":"/mine"}`, []string{"/mine", "/a", "/b"}},
		"empty":      {`{"conf":""}`, []string{"/a", "/b"}},
		"not a text": {`{"conf":7}`, []string{"/a", "/b"}},
		"not JSON":   {`{`, []string{"/a", "/b"}},
	} {
		got := p.Required([]byte(c.ipam))
		if !slices.Equal(got[0].Paths, c.want) || !slices.Equal(got[1].Paths, []string{"/c"}) {
			t.Errorf("%s: got %v, want %v and /c", name, got, c.want)
		}
		if !slices.Equal(p.Requires[0].Paths, []string{"/a", "/b"}) {
			t.Errorf("%s: the profile has changed: %v", name, p.Requires)
		}
	}
}

// A plugin that only passes calls on to a daemon works while that listens.
func TestShippedSockets(t *testing.T) {
	ipam := []byte(`{"daemonSocketPath": "/a", "ipam_unix_socket_path": "/b"}`)
	set := load(t)
	for pluginType, want := range map[string][]string{
		"dhcp":       {"/a", "/run/cni/dhcp.sock"},
		"spiderpool": {"/b", "/var/run/spidernet/spiderpool.sock"},
		"antrea":     {"/var/run/antrea/cni.sock"},
	} {
		got := set.For(pluginType).Required(ipam)
		if len(got) != 1 || got[0].Kind != RequireSocket || !slices.Equal(got[0].Paths, want) {
			t.Errorf("%s requires %+v; want the socket %q", pluginType, got, want)
		}
	}
}

func TestCheckNetworkName(t *testing.T) {
	object := map[string]json.RawMessage{"datastore_type": json.RawMessage(`"kubernetes"`)}
	etcd := map[string]json.RawMessage{"datastore_type": json.RawMessage(`"etcdv3"`)}
	set := load(t)
	if err := set.For("calico-ipam").CheckNetworkName("Cal_Net", etcd); err != nil {
		t.Errorf("with etcd: %v", err)
	}
	long := strings.Repeat("a", 63)
	for name, ok := range map[string]bool{
		"pods": true, "k8s-pod-network": true, "7": true, long: true,
		"Cal_Net": false, "cal.net": false, "-a": false, "a-": false, long + "a": false, "a b": false,
	} {
		err := set.For("calico-ipam").CheckNetworkName(name, object)
		if ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "expected a DNS label") {
			t.Errorf("%s: got %v, want an error %t", name, err, !ok)
		}
		if err := (Profile{}).CheckNetworkName(name, object); err != nil {
			t.Errorf("%s with a profile that accepts any name: %v", name, err)
		}
	}
}

func TestCheckTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		givesUp int
		limit   time.Duration
		ok      bool
	}{
		"never gives up": {0, time.Hour, true},
		"shorter":        {60, 59 * time.Second, true},
		"as long":        {60, time.Minute, false},
		"longer":         {60, time.Hour, false},
	} {
		err := Profile{Type: "whereabouts", DelGivesUpSeconds: c.givesUp}.CheckTimeout(c.limit)
		if c.ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "expected less than 1m0s") {
			t.Errorf("%s: got %v, want an error %t", name, err, !c.ok)
		}
	}
}

func TestCheckReclaim(t *testing.T) {
	set := load(t)
	for pluginType, want := range map[string]string{
		"whereabouts":             "",
		"calico-ipam":             "",
		"host-local":              "keeps its allocations on the node",
		"static":                  "keeps its allocations on the node",
		"azure-ipam":              "random digits",
		"dhcp":                    "expected delFromAnyNode",
		"cni-ipvlan-vpc-k8s-ipam": "expected delFromAnyNode",
		Unknown:                   "expected delFromAnyNode",
	} {
		err := set.For(pluginType).CheckReclaim([]byte(`{"range": "10.15.0.0/24"}`))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", pluginType, err, want)
		}
	}
	// With node slices whereabouts searches the pool of that node only.
	wantError(t, set.For("whereabouts").CheckReclaim([]byte(`{"node_slice_size": "/28"}`)), "ipam.node_slice_size")
}

func TestNotSeparate(t *testing.T) {
	set := load(t)
	for pluginType, want := range map[string]string{
		"host-local":  "",
		"calico-ipam": "interfaces of one container",
		"whereabouts": "containers of one pod",
		"static":      "any attachments of one configuration",
		Unknown:       "",
	} {
		if got := set.For(pluginType).NotSeparate(); got != want {
			t.Errorf("%s: got %q, want %q", pluginType, got, want)
		}
	}
}

// The texts are those of the plugins, inside the messages that they print.
func TestShippedDelNotHeld(t *testing.T) {
	set := load(t)
	for pluginType, msg := range map[string]string{
		"weave-ipam": "400 Bad Request: Delete: no addresses for 0123\n",
		"centralip":  "There aren't any infomation about pod 0123", //nolint:misspell // its own text
		"ecs-ipam":   "release ipstore: no ip address associated with the given id: 0123",
	} {
		if p := set.For(pluginType); !p.IsNotHeld(100, msg, "") || p.IsNotHeld(100, "connection refused", "") {
			t.Errorf("%s: the profile does not tell %q from an outage", pluginType, msg)
		}
	}
}

func TestDanger(t *testing.T) {
	for want, dangers := range map[string][]string{
		"":                 nil,
		"it leaks":         {"it leaks"},
		"(1) one; (2) two": {"one", "two"},
	} {
		if got := (Profile{Dangers: dangers}).Danger(); got != want {
			t.Errorf("%q: got %q, want %q", dangers, got, want)
		}
	}
}
