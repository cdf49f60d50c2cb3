package bridge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// observe returns a snapshot. The CiliumNode is the newest one that needs no request; an outdated one
// is harmless, because every write has its version. A plan that withdraws or releases is made from a
// fresh one.
func (c *controller) observe(ctx context.Context) (snapshot, error) {
	s, fresh, err := c.observeOnce(ctx)
	if err == nil && !fresh && s.plan.Irreversible() {
		c.mustRead = true
		s, _, err = c.observeOnce(ctx)
	}
	return s, err
}

// observeOnce takes the CiliumNode and then lists the slots, in this order. A slot that was listed
// before, and that another bridge or gc withdrew and released in between, would look like a held one
// that is not published yet. A withdrawal after the CiliumNode was taken changes it, and the write of
// this snapshot's plan is a conflict. fresh reports whether the CiliumNode was read.
func (c *controller) observeOnce(ctx context.Context) (s snapshot, fresh bool, err error) {
	n, fresh, err := c.takeNode(ctx)
	if err != nil {
		return s, fresh, err
	}
	if mode := n.OtherMode(); mode != "" { // another component allocates its addresses
		return s, fresh, fail(reasonWrongMode, fmt.Errorf("CiliumNode %s has %s; expected one of ipam mode crd. Nothing was written. "+
			"Set ipam.mode=crd in Cilium; to remove the fields of an earlier mode, delete the CiliumNode once and restart the agent", n.Metadata.Name, mode))
	}
	s.node = n
	s.observed, s.malformed = n.Observed()
	c.state.observe(n.Metadata.UID, s.observed)
	if !c.sidecarChecked {
		// Only once: a status request costs a plugin call.
		if err := c.allocator.checkNode(ctx); err != nil {
			return s, fresh, err
		}
		c.sidecarChecked = true
	}
	if s.observed.Slots, err = c.allocator.slots(ctx); err != nil {
		return s, fresh, err
	}
	s.settings = n.Settings(c.settings)
	c.state.observePods(&s.observed, c.pods())
	s.plan = c.plan(s)
	c.releasing = len(s.observed.Handshakes) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(s.observed.Pool)), planner.Entry.Suspended)
	return s, fresh, nil
}

func (c *controller) plan(s snapshot) planner.Plan {
	return planner.New(s.observed, c.state.remembered(s.observed, s.settings), s.settings)
}

// takeNode returns the CiliumNode, and whether it was just read. It is never older than the one before.
func (c *controller) takeNode(ctx context.Context) (n *ciliumnode.Node, fresh bool, err error) {
	cached, watching := c.node.cached()
	// While a release is in progress the reads show that the API server is available to the agent.
	due := (!watching || c.releasing) && time.Since(c.lastRead) >= resync
	// A watch is late by less than resync. After etcd was restored, versions are older.
	late := cached != nil && c.newest != nil && isNewer(c.newest, cached) && time.Since(c.taken) >= resync
	if cached != nil && !c.mustRead && !due && !late {
		if c.newest != nil && !isNewer(cached, c.newest) {
			return c.newest, false, nil
		}
		return cached, false, nil
	}
	n, err = c.node.get(ctx)
	if err != nil {
		return nil, false, apiError(err)
	}
	c.newest, c.taken, c.lastRead, c.mustRead = n, time.Now(), time.Now(), false
	return n, true, nil
}

// isNewer reports whether a has a later version than b.
func isNewer(a, b *ciliumnode.Node) bool {
	order, err := resourceversion.CompareResourceVersion(a.Metadata.ResourceVersion, b.Metadata.ResourceVersion)
	return err == nil && order > 0
}

type snapshot struct {
	node     *ciliumnode.Node
	observed planner.Observed
	settings planner.Settings
	// malformed are the keys of the pool that are not addresses.
	malformed []string
	plan      planner.Plan
}
