// Package bridge keeps spec.ipam.pool of a node's CiliumNode filled with addresses of the sidecar, so
// that an unmodified cilium-agent in crd mode gets every address from the delegated plugin
// (docs/bridge.md).
package bridge

import (
	"errors"
	"fmt"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/pkg/metrics/endpoint"
)

// Config configures the bridge.
type Config struct {
	// NodeName is the name of the CiliumNode.
	NodeName string
	// Kubeconfig is the path of a kubeconfig; empty for the service account of the pod.
	Kubeconfig string
	// Socket is the path of the sidecar's socket.
	Socket string
	// Pool is the sidecar's pool from which the addresses come.
	Pool string
	// Settings are the numbers of addresses.
	Settings planner.Settings
	// ReleaseDelay is how long an address must be unused before it is released.
	ReleaseDelay time.Duration
	// MetricsAddress is host:port, :port for loopback only, or empty to serve no metrics.
	MetricsAddress string
}

// Validate returns an error that names the first invalid option.
func (c Config) Validate() error {
	switch {
	case c.NodeName == "":
		return errors.New("--node-name is empty; expected the name of this node's CiliumNode; in a pod, set K8S_NODE_NAME from spec.nodeName")
	case c.Pool == "":
		return errors.New("--pool is empty; expected the name of a pool of the sidecar, such as default")
	case c.ReleaseDelay <= 0:
		return fmt.Errorf("--excess-ip-release-delay is %s; expected more than twice the agent's --ipam-cilium-node-update-rate, such as 180s", c.ReleaseDelay)
	}
	if _, err := endpoint.Address(c.MetricsAddress); err != nil {
		return err
	}
	return c.Settings.Validate()
}
