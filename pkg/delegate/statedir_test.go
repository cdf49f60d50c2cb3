package delegate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// Trap: a container's own file system is not the host's, and host-local would give
// pods what it has given us.
func TestAStateFolderOfTheContainersOwnIsRefusedInAPod(t *testing.T) {
	kept := profile.Profile{Type: "host-local", StateDirKey: "dataDir", DefaultStateDir: "/no-such-folder/of-a-plugin"}
	for name, c := range map[string]struct {
		profile profile.Profile
		ipam    string
		inPod   bool
		refused bool
	}{
		"on the container's own file system":   {kept, `{"dataDir":"/no-such-folder/x"}`, true, true},
		"there by default":                     {kept, `{"type":"host-local"}`, true, true},
		"named by what is no text":             {kept, `{"dataDir":7}`, true, true},
		"on a mount":                           {kept, `{"dataDir":"/proc/x/y"}`, true, false},
		"in no pod":                            {kept, `{"dataDir":"/no-such-folder/x"}`, false, false},
		"of a plugin that keeps none in files": {profile.Profile{Type: "calico-ipam"}, `{"dataDir":"/no-such-folder/x"}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := Runner{opts: Options{InPod: c.inPod}}
			err := r.checkStateDir(c.profile, map[string]json.RawMessage{"ipam": json.RawMessage(c.ipam)})
			if (err != nil) != c.refused {
				t.Fatalf("got %v, want it to be refused: %t", err, c.refused)
			}
			if c.refused {
				wantText(t, err, "host-local", "/no-such-folder/", "ipam.dataDir", "mounted")
			}
		})
	}
}

func TestAStateFolderThatCannotBeLookedAtIsAnError(t *testing.T) {
	r := Runner{opts: Options{InPod: true}}
	err := r.checkStateDir(profile.Profile{StateDirKey: "dataDir", DefaultStateDir: "/" + strings.Repeat("x", 300)}, nil)
	wantText(t, err, "state folder of the plugin", "name too long")
}
