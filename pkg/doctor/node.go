package doctor

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// Node is what was seen of the node on which the sidecar runs or is to run.
type Node struct {
	Place     Place
	MachineID string
	Socket    Socket
	StateDir  StateDir
	Pools     []Pool
	// Err is why the pools could not be looked at.
	Err error
}

// LookAtNode looks at what a sidecar with these options finds or would find; socket is
// the one on which it is asked. status is its answer, nil if there is none. Nothing is
// changed, and no plugin verb but VERSION is run.
func LookAtNode(ctx context.Context, c app.Config, socket string, status *models.DelegatedIPAMStatus) Node {
	n := Node{MachineID: journal.Host{}.MachineID(), Place: lookAtPlace(socket, status != nil)}
	n.Socket = lookAtSocket(unixsock.Options{Path: c.SocketPath, Mode: c.SocketMode, Group: c.SocketGroup}, unixsock.Callers{UIDs: c.AllowUIDs, GIDs: c.AllowGIDs})
	n.StateDir = lookAtStateDir(c.StateDir, c.InPod, n.Place.sameUser())
	examined, err := c.Inspect(ctx)
	n.Err = err
	for _, e := range examined {
		n.Pools = append(n.Pools, Pool{
			Inspection: e, Served: served(status, e.Pool),
			GuardIsOther: !app.HolderHas(e.Guard, c.StateDir),
			State:        lookAtPluginState(stateOf(e), e.Plugin.StateKey, c.InPod),
		})
	}
	return n
}

// stateOf is the folder in which the plugin writes: host-local has one for each network.
func stateOf(e app.Inspection) string {
	dir := e.Plugin.StateDir
	if e.Plugin.Plugin == hostLocal && filepath.IsAbs(dir) {
		return filepath.Join(dir, e.Network.Name)
	}
	return dir
}

// served is the network with which the sidecar serves a pool.
func served(status *models.DelegatedIPAMStatus, pool string) string {
	if status == nil {
		return ""
	}
	for _, p := range status.Pools {
		if p.Pool == pool {
			return p.Network
		}
	}
	return ""
}

// PoolStatuses are the pools as the sidecar would tell of them, for LookAt where no
// sidecar answers.
func (n Node) PoolStatuses() []*models.PoolStatus {
	var all []*models.PoolStatus
	for _, p := range n.Pools {
		if !p.known() {
			continue
		}
		status := &models.PoolStatus{
			Pool: p.Pool, Network: p.Network.Name, File: p.Network.File,
			Plugin: p.Plugin.Plugin, Profile: p.Plugin.Profile.Type,
		}
		// A profile is data that came from JSON, and goes back to it.
		if text, err := json.Marshal(p.Plugin.Profile); err == nil {
			_ = json.Unmarshal(text, &status.ProfileFacts)
		}
		all = append(all, status)
	}
	return all
}

// findings are those of the node; stores are what was read of the plugins' files.
func (n Node) findings(stores []Store) []Finding {
	all := append(n.Place.findings(), n.machine()...)
	all = append(all, n.Socket.findings()...)
	all = append(all, n.StateDir.findings()...)
	if n.Err != nil {
		all = append(all, Finding{Check: CheckPlugin, State: Error, Seen: n.Err.Error(), Do: "mend the option that it names: with it the sidecar does not start"})
	}
	for _, p := range n.Pools {
		for _, store := range stores {
			if store.Pool == p.Pool {
				p.State = p.State.withLeases(store.Leases)
			}
		}
		all = append(all, p.findings()...)
	}
	return all
}

// unread tells whether the configuration of a pool cannot be read, which says where
// the plugin's files are.
func (n *Node) unread(pool string) bool {
	return n != nil && slices.ContainsFunc(n.Pools, func(p Pool) bool { return p.Pool == pool && p.ConfErr != nil })
}

// machine is whether the machine can be told from others.
func (n Node) machine() []Finding {
	if n.MachineID == "" {
		return []Finding{{
			Check: CheckMachineID, State: Warning,
			Seen: "there is no machine ID: records of another machine, as after a disk was copied, are not told apart",
			Do:   "mount the host's /etc/machine-id into the container, or make one (systemd-machine-id-setup)",
		}}
	}
	return []Finding{{Check: CheckMachineID, State: OK, Seen: "there is one"}}
}
