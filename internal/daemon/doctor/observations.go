package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-openapi/swag/conv"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/nodelock"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/status"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Observations are the inputs that checks share. A check collects its further inputs itself.
type Observations struct {
	// Options are the options, compared with the daemon's.
	Options Options
	// Config is made of them; nil if they are invalid and no daemon responds. Then the fields that
	// Collect sets are empty.
	Config *daemon.Config
	// Status is the status of the daemon; StatusErr is why there is none.
	Status    *models.DelegatedIPAMStatus
	StatusErr error
	// Before and After are the daemon's list before and after the stores were read, so that a
	// concurrent operation is not reported as a fault. ListErr is why one is missing.
	Before, After []*models.Attachment
	ListErr       error

	// peer is the process that serves the socket, with PID 0 if it is in another PID namespace; nil if
	// it is unknown. otherMounts means that it is in another mount namespace.
	peer        *unixsock.Peer
	otherMounts bool
	stateDir    directory
	// pools are the pools that a start of the daemon would have.
	pools []pool
}

// Options are the options of serve that doctor uses.
type Options struct {
	// Invalid is why the options of doctor's own flags, environment and --config-dir cannot be used,
	// with a line for each option; nil if they can.
	Invalid error
	// Unknown are environment variables that look like options.
	Unknown []string
	// Skipped are the files of --config-dir that have no effect.
	Skipped []string
	// Differing are the options whose values differ from the daemon's, with both values.
	Differing []string
	// FromDaemon means that the checks use the daemon's options.
	FromDaemon bool
}

// Collect sets Config and the fields that depend on it. socket is the path of the socket on which the
// daemon was queried. It changes nothing and calls no plugin verb but those of status.CheckPool, without a daemon;
// with repair it removes the stale lease files. It reads stores under the plugin's own lock, for which it
// waits until ctx ends.
func (o *Observations) Collect(ctx context.Context, c daemon.Config, socket string, repair bool) {
	o.Config = &c
	if o.Status != nil {
		o.collectPeer(socket)
	}
	o.stateDir = collectDirectory(c.StateDir)
	var err error
	o.pools, err = o.collectPools()
	o.Options.Invalid = errors.Join(o.Options.Invalid, err)
	for i := range o.pools {
		o.pools[i].collectStore(ctx, repair)
	}
}

// collectPeer queries the kernel for the process that serves a socket. The check of the daemon reports
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

// sameUser reports whether doctor runs as the daemon's user, or that user is unknown.
func (o *Observations) sameUser() bool { return o.peer == nil || o.peer.UID == os.Geteuid() }

// pool is one pool as a start of the daemon would find it.
type pool struct {
	name string
	// network is its configuration; confErr is why there is none.
	network call.Network
	confErr error
	plugin  plugin.Inspection
	// status is that of the running daemon or, without one, of the same checks here.
	status models.PoolStatus
	// stateDir is the directory to which the plugin writes. Its path is empty if the plugin
	// keeps no state in files; nothing else is set if it is relative.
	stateDir directory
	store    store
}

func (p pool) configured() bool { return p.confErr == nil }

// known reports whether the plugin of the pool and its profile are known.
func (p pool) known() bool { return p.confErr == nil && p.plugin.Profile.Type != "" }

// collectPools inspects each pool, in the order in which pools are served. It changes nothing. The error is why no plugin
// can be run with these options.
func (o *Observations) collectPools() ([]pool, error) {
	runner, runnerErr := plugin.New(o.Config.PluginOptions())
	conf, confErr := cniconf.New(o.Config.NetworkOptions())
	if err := errors.Join(runnerErr, confErr); err != nil {
		return nil, err
	}
	served := conv.Value(o.Status).Pools
	var pools []pool
	for _, name := range conf.Pools() {
		p := pool{name: name}
		if p.network, p.confErr = conf.Network(name); p.confErr == nil {
			p.plugin = runner.Inspect(p.network)
		}
		if i := slices.IndexFunc(served, func(s *models.PoolStatus) bool { return s.Pool == name }); i >= 0 {
			p.status = *served[i]
		} else if p.confErr == nil {
			p.status = status.CheckPool(runner, o.checkLock, p.network)
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

// checkLock returns an error if another daemon serves a network on this node.
func (o *Observations) checkLock(network string) error {
	if holder := nodelock.Holder(o.Config.NodeName, network); holder != "" {
		return fmt.Errorf("network %q is served on this node by another daemon, or by one that hangs: %s; stop one of the two, or give this one its own --node-name or network", network, holder)
	}
	return nil
}
