package profile

import "testing"

func TestConclusions(t *testing.T) {
	type conclusions struct{ delBeforeAdd, singleUseIDs, onNode bool }
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for pluginType, want := range map[string]conclusions{
		"host-local": {true, false, true},
		"static":     {false, false, true},
		"azure-ipam": {false, true, false},
		Unknown:      {true, false, false},
	} {
		p := set.For(pluginType)
		if got := (conclusions{p.DelBeforeAdd(), p.SingleUseIDs(), p.OnNode()}); got != want {
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
		t.Run(name, func(t *testing.T) {
			if dir, key := c.profile.StateDir([]byte(c.ipam)); dir != c.dir || key != c.key {
				t.Errorf("got %q, %q; want %q, %q", dir, key, c.dir, c.key)
			}
		})
	}
}

func TestPod(t *testing.T) {
	synthetic := Pod{"delegated-ipam", "id"}
	for name, c := range map[string]struct {
		identity PodIdentity
		owner    string
		want     Pod
	}{
		"none":             {PodIdentityNone, "default/web-0", Pod{}},
		"synthetic":        {PodIdentitySynthetic, "default/web-0", synthetic},
		"given":            {PodIdentityGiven, "default/web-0", Pod{"default", "web-0"}},
		"given, not a pod": {PodIdentityGiven, "health", synthetic},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Profile{PodIdentity: c.identity}.Pod(c.owner, "id")
			if got != c.want || ok != (c.want != Pod{}) {
				t.Errorf("got %v, %v; want %v", got, ok, c.want)
			}
		})
	}
}
