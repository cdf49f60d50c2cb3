package check

import (
	"context"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/unixsock"
)

// Config is the part of the sidecar's options that the checks need.
type Config struct {
	// Socket configures the socket, and Callers are the authorized callers besides root and
	// the sidecar's user.
	Socket  unixsock.Options
	Callers unixsock.Callers
	// StateDir is the path of the state directory, NodeName the node's name.
	StateDir, NodeName string
	// InPod means that this process runs in a pod.
	InPod bool
	// Conf locates the CNI configurations; its Log may be nil. Plugin configures how plugins are
	// found and run.
	Conf   cniconf.Options
	Plugin plugin.Options
}

// Observations are the inputs that checks share. A check collects its further inputs itself.
type Observations struct {
	// Options are the options, compared with those of the sidecar.
	Options Options
	// Config is made of them; nil if they are invalid and no sidecar responds. Then
	// Environment, StateDir and Pools are empty.
	Config *Config

	Environment Environment
	// StateDir is the sidecar's state directory.
	StateDir Dir
	// Pools are those that a start of the sidecar would have; PoolsErr is why they could
	// not be inspected.
	Pools    []Pool
	PoolsErr error

	// Status is the sidecar's; StatusErr is why there is none.
	Status    *models.DelegatedIPAMStatus
	StatusErr error
	// Stores are the stores of the pools in Status or, without it, in Pools.
	Stores []Store
	// Before and After are the sidecar's list before and after Stores were read, so that
	// a concurrent operation is not reported as a fault. ListErr is why one is missing.
	Before, After []*models.Attachment
	ListErr       error
}

// CollectNode sets Config and the fields that depend on it. socket is the path of the socket on
// which the sidecar was queried. It changes nothing and calls no plugin verb but VERSION.
func (o *Observations) CollectNode(ctx context.Context, c Config, socket string) {
	o.Config = &c
	o.Environment = collectEnvironment(socket, o.Status != nil)
	o.StateDir = CollectDir(c.StateDir)
	o.Pools, o.PoolsErr = collectPools(ctx, c, o.Status)
}

// CollectStores reads the stores of the pools under the plugin's own lock, for which it
// waits until ctx ends. With repair it removes the stale lease files.
func (o *Observations) CollectStores(ctx context.Context, repair bool) {
	o.Stores = collectStores(ctx, o.poolStatuses(), repair)
}

// poolStatuses returns the pools of the sidecar or, without its status, those of a start.
func (o *Observations) poolStatuses() []*models.PoolStatus {
	if o.Status != nil {
		return o.Status.Pools
	}
	var all []*models.PoolStatus
	for _, p := range o.Pools {
		if p.Known() {
			all = append(all, p.status())
		}
	}
	return all
}

// KnownStores returns the stores of the pools with a network whose configuration can be
// read: without it, the check of the configuration has reported the cause.
func (o *Observations) KnownStores() []Store {
	unread := map[string]bool{}
	for _, p := range o.Pools {
		unread[p.Name] = p.ConfErr != nil
	}
	var known []Store
	for _, s := range o.Stores {
		if s.Network != "" && !unread[s.Pool] {
			known = append(known, s)
		}
	}
	return known
}
