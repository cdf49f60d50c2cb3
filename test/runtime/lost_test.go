package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	smallRange = "10.15.0.0/29"
	// addresses are those of smallRange for containers: without the gateway's.
	addresses = 5
)

// A machine in a container restarts with the same boot ID: no DEL follows for its sandboxes.
//
//evidence:design/reliability the runtime loses its state, the boot ID stays
func TestLostRuntime(t *testing.T) {
	n := newNode(t)
	n.configure(t, n.through(n.hostLocal(smallRange)))
	n.startContainerd(t)
	s := n.Start(t)
	check.Must(t, errors.Join(n.runAll(t.Context(), addresses)...))
	n.waitConsistent(t, addresses)
	_, err := n.run(t.Context(), "too-many", 0)
	check.Error(t, err, "no IP addresses available")

	s.Kill(t)
	n.loseState(t)
	n.startContainerd(t) // which has run no pod yet
	n.Start(t, "--missing-netns-release-delay=1s")
	n.waitConsistent(t, 0)
	check.Must(t, errors.Join(n.runAll(t.Context(), addresses)...))
	n.waitConsistent(t, addresses)
}

// endedContainers is that part of GET /v1/healthz.
type endedContainers struct {
	Pending           int
	HiddenDirectories []string `json:"hidden-directories"`
	Runtime           string
	Sandboxes         int
}

func ended(c harness.Client) (endedContainers, error) {
	got, err := c.Try(http.MethodGet, "/v1/healthz")
	var health struct {
		DelegatedIPAM struct {
			Ended endedContainers `json:"ended-containers"`
		} `json:"delegated-ipam"`
	}
	if err == nil {
		err = json.Unmarshal(got.Body, &health)
	}
	return health.DelegatedIPAM.Ended, err
}

// A daemon that cannot see the network namespaces learns from containerd which sandboxes have ended.
//
//evidence:design/reliability the runtime loses its state, the boot ID stays
func TestLostRuntimeAndHiddenNamespaces(t *testing.T) {
	n := newNode(t)
	n.mountNetNS("private", `mount -t tmpfs tmpfs "$0"`)
	n.configure(t, n.through(n.hostLocal(smallRange)))
	n.startContainerd(t)
	s := n.Start(t, "--missing-netns-release-delay=1s")
	check.Must(t, errors.Join(n.runAll(t.Context(), addresses-1)...))
	n.waitConsistent(t, addresses-1)
	n.loseState(t)
	n.startContainerd(t)
	living := n.mustRun(t, "living")
	ip, err := n.address(t.Context(), living)
	check.Must(t, err)

	cluster.NewProgram(t, n.logs, "delegated-ipam-cri", nil, filepath.Join(env(t, "BIN"), "delegated-ipam-cri"),
		"--cri-socket="+socket, "--socket-path="+n.Socket, "--interval=10s").MustStart(t)
	cluster.MustEventually(t, "the lost containers to be pending", convergeTimeout, func() error {
		got, err := ended(s.Client)
		if err == nil && (got.Pending != addresses-1 || got.Sandboxes != 1 || got.Runtime == "" || len(got.HiddenDirectories) == 0) {
			err = fmt.Errorf("ended containers are %+v; want %d pending, 1 sandbox", got, addresses-1)
		}
		return err
	})
	pending := time.Now()
	check.Equal(t, "leases while they are pending", len(n.Leases(t)), addresses)
	n.waitConsistent(t, 1)
	if after := time.Since(pending); after < 4*time.Minute+50*time.Second {
		t.Errorf("released after %s; want at least 5 minutes", after)
	}
	now, err := n.address(t.Context(), living)
	check.Must(t, err)
	check.Equal(t, "address of the living container", now, ip)
}
