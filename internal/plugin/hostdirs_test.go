package plugin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Trap: a container's own file system is not the host's, and host-local would allocate our addresses
// to pods.
func TestStateDirInPod(t *testing.T) {
	hostLocal := profile.Profile{Type: "host-local", StateDirKey: "dataDir", DefaultStateDir: "/no-such-directory/of-a-plugin"}
	queue := func(path string) profile.Profile {
		return profile.Profile{Type: "host-local-like", Requires: []profile.Requirement{
			{Kind: profile.RequireFile, Paths: []string{"/no-such-directory/conf"}, Why: "read by the plugin alone"},
			{Kind: profile.RequireDirectory, Paths: []string{path}, OnHost: true, Why: "the daemon reads ipam.dataDir there"},
		}}
	}
	for name, c := range map[string]struct {
		profile profile.Profile
		ipam    string
		inPod   bool
		refused bool
	}{
		"queue on the container's own file system": {queue("/no-such-directory/queue"), `{}`, true, true},
		"queue on a mount":                         {queue("/proc/x/y"), `{}`, true, false},
		"one of two queues on a mount": {profile.Profile{Type: "host-local-like", Requires: []profile.Requirement{
			{Kind: profile.RequireDirectory, Paths: []string{"/no-such-directory/queue", "/proc/x/y"}, OnHost: true, Why: "one is enough"},
		}}, `{}`, true, false},
		"queue, not in a pod":         {queue("/no-such-directory/queue"), `{}`, false, false},
		"container's own file system": {hostLocal, `{"dataDir":"/no-such-directory/x"}`, true, true},
		"default":                     {hostLocal, `{"type":"host-local"}`, true, true},
		"not a text":                  {hostLocal, `{"dataDir":7}`, true, true},
		"mount":                       {hostLocal, `{"dataDir":"/proc/x/y"}`, true, false},
		"not in a pod":                {hostLocal, `{"dataDir":"/no-such-directory/x"}`, false, false},
		"plugin without state files":  {profile.Profile{Type: "calico-ipam"}, `{"dataDir":"/no-such-directory/x"}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := Runner{opts: Options{InPod: c.inPod}}
			err := r.checkHostDirs(c.profile, pluginObject{"ipam": json.RawMessage(c.ipam)})
			if (err != nil) != c.refused {
				t.Fatalf("got %v, want refused: %t", err, c.refused)
			}
			if c.refused {
				wantText(t, err, "host-local", "/no-such-directory/", "ipam.dataDir", "mounted")
			}
		})
	}
}

func TestStateDirError(t *testing.T) {
	r := Runner{opts: Options{InPod: true}}
	err := r.checkHostDirs(profile.Profile{StateDirKey: "dataDir", DefaultStateDir: "/" + strings.Repeat("x", 300)}, nil)
	wantText(t, err, "directory of the plugin", "name too long")
}
