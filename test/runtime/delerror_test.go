package runtime

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// containerd takes some texts for the success of a DEL. An error with them reaches the kubelet anyway,
// which repeats StopPodSandbox.
func TestErrorOfDEL(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		// withoutNetNS removes the sandbox's network namespace before.
		withoutNetNS bool
	}{
		"not found":     {text: "lease not found"},
		"not a file":    {text: "open /lease: no such file or directory"},
		"without netns": {text: "open /lease: no such file or directory", withoutNetNS: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			plugin := filepath.Join(n.BinDir, "host-local")
			check.Must(t, os.Rename(plugin, plugin+".real"))
			// It fails a verb with the output in a file.
			n.InstallScript(t, "host-local", `#!/bin/sh
[ ! -e "$0.$CNI_COMMAND" ] || { cat "$0.$CNI_COMMAND"; exit 1; }
exec "$0.real"
`)
			n.configure(t, n.through(n.hostLocal("10.15.0.0/24")))
			n.startContainerd(t)
			n.Start(t)
			id := n.mustRun(t, "web")
			n.waitConsistent(t, 1)
			if test.withoutNetNS {
				check.Must(t, removeNetNS())
			}
			check.Must(t, os.WriteFile(plugin+".DEL", []byte(`{"cniVersion": "1.0.0", "code": 999, "msg": "`+test.text+`"}`), 0o600))
			for range 2 {
				check.Error(t, n.stop(t.Context(), id))
				check.Equal(t, "leases", len(n.Leases(t)), 1)
			}
			check.Must(t, os.Remove(plugin+".DEL"))
			check.Must(t, n.stop(t.Context(), id))
			check.Equal(t, "leases", len(n.Leases(t)), 0)
			check.Must(t, n.remove(t.Context(), id))
			n.waitConsistent(t, 0)
		})
	}
}
