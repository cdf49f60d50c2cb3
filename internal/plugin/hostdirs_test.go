package plugin

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

func TestStateDirError(t *testing.T) {
	r := Runner{opts: Options{InPod: true}}
	err := r.checkHostDirs(profile.Profile{StateDirKey: "dataDir", DefaultStateDir: "/" + strings.Repeat("x", 300)}, nil)
	wantText(t, err, "directory of the plugin", "name too long")
}
