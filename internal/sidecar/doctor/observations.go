package doctor

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

// Observations are the inputs that checks share. A check collects its further inputs itself.
type Observations struct {
	// Options are the options, compared with the sidecar's.
	Options Options
	// Config is made of them; nil if they are invalid and no sidecar responds. Then the fields that
	// CollectNode sets are empty.
	Config *sidecar.Config
	// Status is the status of the sidecar; StatusErr is why there is none.
	Status    *models.DelegatedIPAMStatus
	StatusErr error
	// Before and After are the sidecar's list before and after the stores were read, so that a
	// concurrent operation is not reported as a fault. ListErr is why one is missing.
	Before, After []*models.Attachment
	ListErr       error

	environment environment
	// machineID is empty if the machine has none.
	machineID string
	// stateDir is the sidecar's state directory.
	stateDir directory
	// pools are the pools that a start of the sidecar would have; poolsErr is why they could not be
	// inspected.
	pools    []pool
	poolsErr error
	// stores are the stores of the pools in Status or, without it, in pools.
	stores []store
}

// Options are the options of serve that doctor uses.
type Options struct {
	// Invalid is why the options of doctor's own flags, environment and --config-dir cannot be used,
	// one error for each option. Unusable means that no configuration could be made of them.
	Invalid  []error
	Unusable bool
	// Unknown are environment variables that look like options.
	Unknown []string
	// Skipped are the files of --config-dir that have no effect.
	Skipped []string
	// Differing are the options whose values differ from the sidecar's, with both values.
	Differing []string
	// FromSidecar means that the checks use the sidecar's options.
	FromSidecar bool
}

// CollectNode sets Config and the fields that depend on it. socket is the path of the socket on
// which the sidecar was queried. It changes nothing and calls no plugin verb but VERSION.
func (o *Observations) CollectNode(ctx context.Context, c sidecar.Config, socket string) {
	o.Config = &c
	o.environment = collectEnvironment(socket, o.Status != nil)
	o.machineID = journal.Host{}.MachineID()
	o.stateDir = collectDirectory(c.StateDir)
	o.pools, o.poolsErr = collectPools(ctx, c)
}

// CollectStores reads the stores of the pools under the plugin's own lock, for which it
// waits until ctx ends. With repair it removes the stale lease files.
func (o *Observations) CollectStores(ctx context.Context, repair bool) {
	for _, p := range o.poolStatuses() {
		o.stores = append(o.stores, collectStore(ctx, p, repair))
	}
}

// poolStatuses returns the pools of the sidecar or, without its status, the pools of a start.
func (o *Observations) poolStatuses() []*models.PoolStatus {
	if o.Status != nil {
		return o.Status.Pools
	}
	var all []*models.PoolStatus
	for _, p := range o.pools {
		if p.known() {
			all = append(all, p.status())
		}
	}
	return all
}

// environment compares the environment of doctor with the sidecar's.
type environment struct {
	// known means that peer is known.
	known bool
	// peer is the process that serves the socket; its PID is 0 if it is in another PID namespace.
	peer unixsock.Peer
	// uid is the user of doctor.
	uid int
	// otherMounts means that the peer is in another mount namespace.
	otherMounts bool
}

// collectEnvironment queries the kernel for the peer of a socket if that is served.
func collectEnvironment(socket string, served bool) environment {
	e := environment{uid: os.Geteuid()}
	if !served {
		return e
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return e // reported by the check of the sidecar
	}
	defer conn.Close()
	if e.peer, err = unixsock.PeerOf(conn); err != nil {
		return e
	}
	e.known = true
	if own, err := os.Stat("/proc/self/ns/mnt"); err == nil {
		other, err := os.Stat(fmt.Sprintf("/proc/%d/ns/mnt", e.peer.PID))
		e.otherMounts = err == nil && !os.SameFile(own, other) // another user's is not visible
	}
	return e
}

// sameUser reports whether doctor runs as the sidecar's user, or that user is unknown.
func (e environment) sameUser() bool { return !e.known || e.peer.UID == e.uid }
