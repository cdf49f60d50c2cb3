package profile

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// facts are those of one plugin in docs/plugins.md.
type facts struct {
	repeatedAdd           RepeatedAdd
	verifyBy              Verify
	checkProves           CheckProves
	lost                  string // as JSON
	outlives              time.Duration
	del                   Del
	stateKey, stateDir    string
	requests              []Request
	form                  RequestForm
	pod                   PodIdentity
	namespace             Namespace
	unique, refusedUnsafe bool
	waits                 bool
}

func allFacts() map[string]facts {
	const (
		refused, same, another = RepeatedAddRefused, RepeatedAddSameAnswer, RepeatedAddAnotherAddress
		no                     = `{}`
	)
	three := []Request{RequestArgsCNI, RequestRuntimeConfig, RequestCNIArgs}
	return map[string]facts{
		"host-local": {
			refused, VerifyCheck, ProvesPresence, `{"codes":[999],"message":"Failed to find address"}`, 0, DelReleased, "dataDir", "/var/lib/cni/networks",
			three, FormAddress, PodIdentityNone, NamespaceAny, true, false, true,
		},
		"static": {
			same, VerifyCheck, ProvesAddress, `{"codes":[999],"message":"Failed to match addr"}`, 0, DelReleased, "", "",
			three, FormCIDR, PodIdentityNone, NamespaceAny, false, false, true,
		},
		"dhcp": {
			same, VerifyAdd, ProvesNothing, no, 208 * time.Second, DelReleased, "", "",
			nil, "", PodIdentityNone, NamespaceLink, true, false, true,
		},
		"whereabouts": {
			same, VerifyNothing, ProvesNothing, no, time.Minute, DelUnproved, "", "",
			nil, "", PodIdentitySynthetic, NamespaceAny, true, true, false,
		},
		"calico-ipam": {
			another, VerifyNothing, ProvesNothing, no, time.Minute, DelReleased, "", "",
			[]Request{RequestCNIArgs},
			FormAddress, PodIdentityNone, NamespaceAny, true, false, false,
		},
		"azure-ipam": {
			same, VerifyAdd, ProvesNothing, no, 240 * time.Second, DelQueued, "", "",
			nil, "", PodIdentityGiven, NamespaceAny, true, false, false,
		},
		"cni-ipvlan-vpc-k8s-ipam": {
			another, VerifyNothing, ProvesNothing, no, time.Minute, DelUnproved, "", "",
			nil, "", PodIdentityNone, NamespaceAny, true, true, false,
		},
		Unknown: {
			another, VerifyCheck, ProvesPresence, `{"minCode":100}`, 240 * time.Second, DelReleased, "", "",
			nil, "", PodIdentityNone, NamespaceAny, true, false, false,
		},
	}
}

func TestEmbeddedProfiles(t *testing.T) {
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	want := allFacts()
	for pluginType := range set {
		if _, ok := want[pluginType]; !ok {
			t.Errorf("profile %q is not in the table", pluginType)
		}
	}
	for pluginType, w := range want {
		t.Run(pluginType, func(t *testing.T) {
			p, ok := set[pluginType]
			if !ok {
				t.Fatal("there is no such profile")
			}
			lost, err := json.Marshal(p.Lost)
			if err != nil {
				t.Fatal(err)
			}
			for field, c := range map[string]struct{ got, want any }{
				"type":               {p.Type, pluginType},
				"repeatedAdd":        {p.RepeatedAdd, w.repeatedAdd},
				"verifyBy":           {p.VerifyBy, w.verifyBy},
				"checkProves":        {p.CheckProves, w.checkProves},
				"lost":               {string(lost), w.lost},
				"addOutlivesSeconds": {p.AddActsUntil(time.Time{}).Sub(time.Time{}), w.outlives},
				"delOutlivesSeconds": {p.DelActsUntil(time.Time{}).Sub(time.Time{}), w.outlives},
				"store":              {p.Store == StoreNode, pluginType == "host-local" || pluginType == "static"},
				"lookup":             {p.Lookup == LookupHostLocal, pluginType == "host-local"},
				"del":                {p.Del, w.del},
				"requests":           {slices.Equal(p.Requests, w.requests), true},
				"requestForm":        {p.RequestForm, w.form},
				"podIdentity":        {p.PodIdentity, w.pod},
				"namespace":          {p.Namespace, w.namespace},
				"stateDirKey":        {p.StateDirKey, w.stateKey},
				"defaultStateDir":    {p.DefaultStateDir, w.stateDir},
				"unique":             {p.Unique, w.unique},
				"waitsForConfig":     {p.WaitsForConfig, w.waits},
				"unsafe":             {p.Unsafe != "", w.refusedUnsafe},
				"sources":            {len(p.Sources) > 0, true},
			} {
				if c.got != c.want {
					t.Errorf("%s: got %v, want %v", field, c.got, c.want)
				}
			}
		})
	}
}

func TestDocsProfile(t *testing.T) {
	page, err := os.ReadFile("../../../docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(page), "```json\n{\n  \"type\"")
	example, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatal("docs/plugins.md has no profile")
	}
	p, err := Parse([]byte("{\n  \"type\"" + example))
	if err != nil {
		t.Fatal(err)
	}
	if p.Type != "my-ipam" {
		t.Errorf("got a profile of %q, want the example's", p.Type)
	}
}

func TestDocsFields(t *testing.T) {
	page, err := os.ReadFile("../../../docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[Profile]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !strings.Contains(string(page), "\n| `"+name+"` |") {
			t.Errorf("docs/plugins.md has no row for the field %q", name)
		}
	}
}
