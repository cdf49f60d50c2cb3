package contract

import (
	"encoding/json"
	"testing"

	gocni "github.com/containerd/go-cni"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// containerd takes some errors of a DEL for success, so the addresses would stay allocated. Its own
// client must see each failed DEL.
func TestContainerdSeesFailedDel(t *testing.T) {
	for name, msg := range map[string]string{
		"not found": "link eth0 not found", "no file": "open /var/lib/x: no such file or directory",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "code": 999, "msg": msg})
			check.Must(t, err)
			n := harness.NewNode(t)
			n.PodsThrough(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "scripted"})
			n.InstallScript(t, "scripted", version+"cat <<'END'\n"+string(answer)+"\nEND\nexit 1\n")
			launch(t, n)
			list, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "pods", "plugins": []any{map[string]any{
				"type": "delegated-ipam-cni", "ipam": map[string]any{"type": "delegated-ipam-cni", "socket": n.Socket, "delegate": map[string]any{"type": "scripted"}},
			}}})
			check.Must(t, err)
			client, err := gocni.New(gocni.WithPluginDir([]string{n.BinDir}), gocni.WithConfListBytes(list), gocni.WithPluginConfDir(n.ConfDir))
			check.Must(t, err)
			for _, path := range []string{"", "/var/run/netns/none"} {
				if err := client.Remove(t.Context(), "0123abcd", path); err == nil {
					t.Errorf("namespace %q: containerd's client takes the failed DEL for success", path)
				}
			}
		})
	}
}
