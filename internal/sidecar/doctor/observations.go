package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

// Observations are the inputs that checks share. A check collects its further inputs itself.
type Observations struct {
	// Options are the options, compared with the sidecar's.
	Options Options
	// Config is made of them; nil if they are invalid and no sidecar responds. Then the fields that
	// Collect sets are empty.
	Config *sidecar.Config
	// Status is the status of the sidecar; StatusErr is why there is none.
	Status    *models.DelegatedIPAMStatus
	StatusErr error
	// Before and After are the sidecar's list before and after the stores were read, so that a
	// concurrent operation is not reported as a fault. ListErr is why one is missing.
	Before, After []*models.Attachment
	ListErr       error

	// peer is the process that serves the socket, with PID 0 if it is in another PID namespace; nil if
	// it is unknown. otherMounts means that it is in another mount namespace.
	peer        *unixsock.Peer
	otherMounts bool
	// machineID is empty if the machine has none.
	machineID string
	stateDir  directory
	// pools are the pools that a start of the sidecar would have; poolsErr is why they could not be
	// inspected.
	pools    []pool
	poolsErr error
}

// Options are the options of serve that doctor uses.
type Options struct {
	// Invalid is why the options of doctor's own flags, environment and --config-dir cannot be used,
	// one error for each option.
	Invalid []error
	// Unknown are environment variables that look like options.
	Unknown []string
	// Skipped are the files of --config-dir that have no effect.
	Skipped []string
	// Differing are the options whose values differ from the sidecar's, with both values.
	Differing []string
	// FromSidecar means that the checks use the sidecar's options.
	FromSidecar bool
}

// Collect sets Config and the fields that depend on it. socket is the path of the socket on which the
// sidecar was queried. It changes nothing and calls no plugin verb but those of plugin.Runner.Inspect;
// with repair it removes the stale lease files. It reads stores under the plugin's own lock, for which it
// waits until ctx ends.
func (o *Observations) Collect(ctx context.Context, c sidecar.Config, socket string, repair bool) {
	o.Config = &c
	if o.Status != nil {
		o.collectPeer(socket)
	}
	o.machineID = statedir.Host{}.MachineID()
	o.stateDir = collectDirectory(c.StateDir)
	if o.pools, o.poolsErr = collectPools(ctx, c); o.poolsErr == nil {
		for i := range o.pools {
			o.pools[i].collectStore(ctx, repair)
			o.pools[i].collectReleases(o.Before)
		}
	}
}

// collectPeer queries the kernel for the process that serves a socket. The check of the sidecar reports
// its errors.
func (o *Observations) collectPeer(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer conn.Close()
	peer, err := unixsock.PeerOf(conn)
	if err != nil {
		return
	}
	o.peer = &peer
	if own, err := os.Stat("/proc/self/ns/mnt"); err == nil {
		other, err := os.Stat(fmt.Sprintf("/proc/%d/ns/mnt", peer.PID))
		o.otherMounts = err == nil && !os.SameFile(own, other) // another user's is not visible
	}
}

// sameUser reports whether doctor runs as the sidecar's user, or that user is unknown.
func (o *Observations) sameUser() bool { return o.peer == nil || o.peer.UID == os.Geteuid() }

// pool is one pool as a start of the sidecar would find it.
type pool struct {
	name string
	// network is its configuration; confErr is why there is none.
	network call.Network
	confErr error
	// netNSErr is why --cni-netns is rejected.
	netNSErr error
	plugin   plugin.Inspection
	// lockHolder describes the process that holds the node lock of the network (nodelock.Holder);
	// empty if no process does.
	lockHolder string
	// stateDir is the directory to which the plugin writes. Its path is empty if the plugin
	// keeps no state in files; nothing else is set if it is relative.
	stateDir directory
	store    store
	releases *releases // nil if DEL needs no address in CNI_NETNS
}

func (p pool) configured() bool { return p.confErr == nil }

// known reports whether the plugin of the pool and its profile are known.
func (p pool) known() bool { return p.confErr == nil && p.plugin.Profile.Type != "" }

// executed reports whether the plugin is known, was found and started.
func (p pool) executed() bool {
	failed, ok := errors.AsType[*call.Error](p.plugin.VersionErr)
	return p.known() && p.plugin.FindErr == nil && (!ok || failed.Outcome != call.NotStarted)
}

// collectPools inspects each pool, in the order in which pools are served, with the code that the
// sidecar runs before its first ADD. It changes nothing. The error is why no plugin can be run with
// these options.
func collectPools(ctx context.Context, c sidecar.Config) ([]pool, error) {
	o := c.PluginOptions()
	netNSErr := plugin.CheckNetNS(o.NetNS)
	if netNSErr != nil {
		o.NetNS = "" // the rest of the result does not depend on it
	}
	runner, runnerErr := plugin.New(o)
	conf, confErr := cniconf.New(c.NetworkOptions())
	if err := errors.Join(runnerErr, confErr); err != nil {
		return nil, err
	}
	var pools []pool
	for _, name := range conf.Pools() {
		p := pool{name: name, netNSErr: netNSErr}
		if p.network, p.confErr = conf.Network(name); p.confErr == nil {
			p.lockHolder = nodelock.Holder(c.NodeName, p.network.Name)
			p.plugin = runner.Inspect(ctx, p.network)
		}
		p.stateDir = directory{path: p.plugin.StateDir}
		if p.hasStore() { // host-local has a directory for each network
			p.stateDir.path = filepath.Join(p.stateDir.path, p.network.Name)
		}
		if filepath.IsAbs(p.stateDir.path) {
			p.stateDir = collectDirectory(p.stateDir.path)
		}
		pools = append(pools, p)
	}
	return pools, nil
}
