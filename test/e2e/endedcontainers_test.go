package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// endedNode is a node with a full range of 5 pods, whose namespaces are in a directory. Then the daemon
// stopped, and a restart without a new boot ID, as of a container of kind or LXC, left one namespace.
func endedNode(t *testing.T) (n *harness.Node, namespaces string, pods []container) {
	t.Helper()
	n = harness.NewNode(t)
	ipam := map[string]any{"type": "host-local", "dataDir": n.StoreDir, "ranges": [][]map[string]string{{{"subnet": "10.15.0.0/29"}}}}
	writeContainers(t, n, ipam)
	namespaces = t.TempDir()
	s := n.Start(t)
	for i := range 5 {
		c := container{fmt.Sprintf("pod%d", i), "eth0"}
		pods = append(pods, c)
		check.Must(t, os.WriteFile(filepath.Join(namespaces, c.id), nil, 0o600))
		request := c.request()
		request["netns"] = filepath.Join(namespaces, c.id)
		request["args"] = "IgnoreUnknown=1;K8S_POD_INFRA_CONTAINER_ID=" + c.id
		cni(t, s, "add", request).WantStatus(t, http.StatusOK)
	}
	s.Stop(t)
	for _, c := range pods[1:] {
		check.Must(t, os.Remove(filepath.Join(namespaces, c.id)))
	}
	n.Flags = append(n.Flags, "--missing-netns-release-delay=10ms")
	return n, namespaces, pods
}

// mounted makes the daemon see a directory through a mount, after which the host's mounts appear in it or do
// not.
func mounted(n *harness.Node, dir, propagation string) {
	n.Wrapper = []string{
		"unshare", "--mount", "--propagation", "private", "--",
		"sh", "-c", fmt.Sprintf(`mount --bind %[1]q %[1]q && mount --make-%[2]s %[1]q && exec "$@"`, dir, propagation), "sh",
	}
}

//evidence:design/reliability the runtime loses its state, the boot ID stays
func TestEndedContainersFullRange(t *testing.T) {
	t.Parallel()
	n, namespaces, pods := endedNode(t)
	mounted(n, namespaces, "shared")
	s := n.Start(t)
	for _, c := range pods[1:] {
		waitReleased(t, s, c.owner())
	}
	wantState(t, s, pods[0].owner(), "held")
	wantLeaseCount(t, n, 1)
	addContainer(t, s, container{"next", "eth0"})
}

// Where the directory is not the host's, a missing namespace proves nothing; status and doctor say so.
//
//evidence:design/reliability the runtime loses its state, the boot ID stays
func TestEndedContainersHidden(t *testing.T) {
	t.Parallel()
	n, namespaces, pods := endedNode(t)
	mounted(n, namespaces, "private")
	s := n.Start(t)
	waitEnded(t, n, func(e *models.EndedContainers) bool { return slices.Equal(e.HiddenDirectories, []string{namespaces}) })
	for _, c := range pods {
		wantState(t, s, c.owner(), "held")
	}
	check.Contains(t, n.Command(t, "doctor").Stdout, "the network namespaces of containers in "+namespaces+" cannot be seen")
	check.Contains(t, n.Command(t, "status").Stdout, namespaces)

	// The runtime's list counts them, and never one that it knows.
	report := map[string]any{"runtime": "containerd v2.4.2", "sandboxes": []string{pods[0].id, pods[1].id}}
	cni(t, s, "sandboxes", report).WantStatus(t, http.StatusOK)
	waitEnded(t, n, func(e *models.EndedContainers) bool { return e.Pending == 3 })
	for _, c := range pods {
		wantState(t, s, c.owner(), "held")
	}
}

// waitEnded waits for a status of containers that ended without a DEL.
func waitEnded(t *testing.T, n *harness.Node, ok func(*models.EndedContainers) bool) {
	t.Helper()
	harness.Eventually(t, "the status of ended containers", func() error {
		var status struct {
			DelegatedIPAM models.DelegatedIPAMStatus `json:"delegated-ipam"`
		}
		out := n.Command(t, "status", "-o=json").Stdout
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		if e := status.DelegatedIPAM.EndedContainers; e == nil || !ok(e) {
			return fmt.Errorf("the status has %+v", e)
		}
		return nil
	})
}
