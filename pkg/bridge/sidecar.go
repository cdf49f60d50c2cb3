package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// sidecarClient allocates the node's slots at the sidecar.
type sidecarClient struct {
	api *client.Client
	// pool is the pool of the slots, node the name that the sidecar must have.
	pool, node string
}

// slots lists the node's attachments.
func (s sidecarClient) slots(ctx context.Context) ([]planner.Slot, error) {
	all, err := s.api.List(ctx)
	if err != nil {
		return nil, unavailable("list the addresses", err)
	}
	var slots []planner.Slot
	for i := range all {
		a := &all[i]
		if n, ours := planner.Number(a.Owner); ours && a.Pool == s.pool {
			slots = append(slots, planner.Slot{Number: n, Addresses: a.Allocated(), Held: a.State == client.StateHeld && !a.Lost})
		}
	}
	return slots, nil
}

// check refuses the sidecar of another node: its addresses are not for this one.
func (s sidecarClient) check(ctx context.Context) error {
	status, err := s.api.Status(ctx)
	if err != nil {
		return unavailable("report its status", err)
	}
	if status.NodeName == "" || status.NodeName == s.node {
		return nil
	}
	return &trouble{anotherNode, fmt.Errorf("the sidecar serves node %q, and --node-name is %q; expected the sidecar of this node. Nothing was written. Give both the same --node-name",
		status.NodeName, s.node)}
}

// acquire makes the sidecar hold a slot, with every family that is on. That the
// plugin has no address is errExhausted.
func (s sidecarClient) acquire(ctx context.Context, n int) error {
	owner := planner.Owner(n)
	_, err := s.api.Allocate(ctx, owner, client.AllocateOptions{Pool: s.pool})
	if refused := refusal(err); refused != nil && refused.StatusCode == http.StatusBadGateway && refused.RetryAfter == 0 {
		return fmt.Errorf("%w: %w", errExhausted, err)
	}
	return failed("acquire an address for "+owner, err)
}

// restore makes the sidecar hold exactly this address for a slot. That it does
// not is errRefused.
func (s sidecarClient) restore(ctx context.Context, n int, ip netip.Addr) error {
	err := s.api.Restore(ctx, ip, planner.Owner(n), client.RestoreOptions{Pool: s.pool})
	if refused := refusal(err); refused != nil && refused.StatusCode != http.StatusForbidden && refused.RetryAfter == 0 {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return failed("restore "+ip.String(), err)
}

// free gives an address back. One that is not handed out is no error: it has
// been given back before.
func (s sidecarClient) free(ctx context.Context, ip netip.Addr) error {
	err := s.api.Release(ctx, ip, client.ReleaseOptions{Pool: s.pool})
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return failed("release "+ip.String(), err)
}

func refusal(err error) *client.Error {
	var refused *client.Error
	errors.As(err, &refused)
	return refused
}

// failed is a request that did not succeed; nil for one that did.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, client.ErrForbidden) {
		return &trouble{notAdmitted, fmt.Errorf("the sidecar does not let the bridge %s: its --owners must admit %q, and --allow-uids or --allow-gids this process",
			what, planner.OwnerPrefix+"*")}
	}
	return unavailable(what, err)
}

func unavailable(what string, err error) error {
	return &trouble{sidecarUnavailable, fmt.Errorf("the sidecar could not be asked to %s: %w", what, err)}
}
