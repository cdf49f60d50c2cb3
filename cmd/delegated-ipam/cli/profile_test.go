package cli

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// ownProfile is a file of --plugin-profile for a new type.
const ownProfile = `{"type": "my-ipam", "repeatedAdd": "refused", "verifyBy": "nothing", "checkProves": "nothing", "lost": {},
	"addOutlivesSeconds": 7, "del": "released", "store": "remote", "lookup": "none", "podIdentity": "none",
	"namespace": "any", "unique": true, "sources": ["a trial"]}`

func writeOwnProfile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "my-ipam.json")
	put(t, file, ownProfile)
	return file
}

func TestProfileList(t *testing.T) {
	file := writeOwnProfile(t)
	o := testDependencies(nil).exec(t, "profile", "list", "-o", "json", "--plugin-profile="+file)
	var all []listedProfile
	if err := json.Unmarshal([]byte(o.stdout), &all); err != nil || o.code != cmdline.ExitOK {
		t.Fatalf("exit code %d, %v: %s%s", o.code, err, o.stdout, o.stderr)
	}
	var types []string
	for _, p := range all {
		if p.Type == profile.Unknown && p.VerifyBy != profile.VerifyNothing {
			t.Errorf("of a type without a profile, a loss is noticed by %q; want nothing", p.VerifyBy)
		}
		types = append(types, p.Type)
		if p.Type == "my-ipam" && !slices.Equal(p.Sources, []string{"a trial"}) {
			t.Errorf("my-ipam has the sources %q; want those of its file", p.Sources)
		}
	}
	set, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(types) != len(set)+1 || !slices.IsSorted(types) || !slices.Contains(types, "my-ipam") {
		t.Errorf("listed %q; want the embedded ones and my-ipam, sorted", types)
	}
	table := testDependencies(map[string]string{"DELEGATED_IPAM_PLUGIN_PROFILE": file}).exec(t, "profile", "list")
	for _, want := range []string{"TYPE", "my-ipam", "a trial", "danger: ", "not noticed: ", "not separate: containers of one pod", "must not be tried: "} {
		if !strings.Contains(table.stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, table.stdout)
		}
	}
}

// The shown profile can be read as a file of --plugin-profile.
func TestProfileShow(t *testing.T) {
	file := writeOwnProfile(t)
	for name, c := range map[string]struct {
		pluginType  string
		note        []string
		addOutlives int
	}{
		"embedded":        {"dhcp", nil, 208},
		"of a file":       {"my-ipam", nil, 7},
		"without profile": {"other-ipam", []string{"other-ipam has no profile", "unknown"}, 240},
	} {
		t.Run(name, func(t *testing.T) {
			o := testDependencies(nil).exec(t, "profile", "show", c.pluginType, "--plugin-profile="+file)
			o.wants(t, cmdline.ExitOK, o.stdout, c.note...)
			p, err := profile.Parse([]byte(o.stdout))
			if err != nil || p.Type != c.pluginType || p.AddOutlivesSeconds != c.addOutlives {
				t.Errorf("got %+v, %v; want a valid profile of %s in which an ADD outlives %d s", p, err, c.pluginType, c.addOutlives)
			}
		})
	}
}

func TestProfileFileMissing(t *testing.T) {
	for _, line := range []string{"profile list", "profile show dhcp"} {
		o := testDependencies(nil).exec(t, append(strings.Fields(line), "--plugin-profile=/nowhere.json")...)
		o.wants(t, cmdline.ExitFailed, "", "profile ", "/nowhere.json")
	}
}

// The daemon's own options apply, as in its container.
func TestProfileTryEnvironment(t *testing.T) {
	dir := t.TempDir()
	conf := `{"cniVersion":"1.0.0","name":"blue-network","plugins":[{"type":"cilium-cni","ipam":{"type":"my-ipam"}}]}`
	put(t, filepath.Join(dir, "20-blue.conflist"), conf)
	env := map[string]string{"DELEGATED_IPAM_CNI_CONF_DIR": dir, "DELEGATED_IPAM_CNI_BIN_DIR": dir, "DELEGATED_IPAM_POOL": "blue=blue-network", "DELEGATED_IPAM_CNI_NETWORK": "red"}
	o := testDependencies(env).exec(t, "profile", "try", "my-ipam")
	o.wants(t, cmdline.ExitFailed, o.stdout, `network "blue-network"`, `failed to find plugin "my-ipam"`)
	o = testDependencies(env).exec(t, "profile", "try", "other-ipam")
	o.wants(t, cmdline.ExitFailed, "", `no network with ipam.type "other-ipam"`, `network "blue-network" has ipam.type "my-ipam"`, `"red"`, "--cni-conf-file")
}
