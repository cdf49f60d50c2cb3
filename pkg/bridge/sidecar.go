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
		return nil, unavailable("list the sidecar's addresses", err)
	}
	var slots []planner.Slot
	for i := range all {
		a := &all[i]
		if n, ours := planner.ParseOwner(a.Owner); ours && a.Pool == s.pool {
			slots = append(slots, planner.Slot{Number: n, Addresses: a.Allocated(), Held: a.State == client.StateHeld && !a.Lost})
		}
	}
	return slots, nil
}

// checkNode fails if the sidecar is that of another node, whose addresses are not for this one.
func (s sidecarClient) checkNode(ctx context.Context) error {
	status, err := s.api.Status(ctx)
	if err != nil {
		return unavailable("get the sidecar's status", err)
	}
	if status.NodeName == "" || status.NodeName == s.node {
		return nil
	}
	return &reconcileError{reasonNodeMismatch, fmt.Errorf("the sidecar serves node %q, and --node-name is %q; expected the sidecar of this node. Nothing was written. Give both the same --node-name",
		status.NodeName, s.node)}
}

// acquire allocates a slot, with an address of every enabled family. The error is errExhausted if the
// plugin has no address.
func (s sidecarClient) acquire(ctx context.Context, n int) error {
	owner := planner.Owner(n)
	_, err := s.api.Allocate(ctx, owner, client.AllocateOptions{Pool: s.pool})
	if refused := asRefusal(err); refused != nil && refused.StatusCode == http.StatusBadGateway && refused.RetryAfter == 0 {
		return fmt.Errorf("%w: %w", errExhausted, err)
	}
	return requestError("acquire an address for "+owner, err)
}

// restore allocates exactly this address to a slot. The error is errRefused if that is not possible.
func (s sidecarClient) restore(ctx context.Context, n int, ip netip.Addr) error {
	err := s.api.Restore(ctx, ip, planner.Owner(n), client.RestoreOptions{Pool: s.pool})
	if refused := asRefusal(err); refused != nil && refused.StatusCode != http.StatusForbidden && refused.RetryAfter == 0 {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return requestError("restore "+ip.String(), err)
}

// release releases an address. It succeeds if the address was released before.
func (s sidecarClient) release(ctx context.Context, ip netip.Addr) error {
	err := s.api.Release(ctx, ip, client.ReleaseOptions{Pool: s.pool})
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return requestError("release "+ip.String(), err)
}

func asRefusal(err error) *client.Error {
	var refused *client.Error
	errors.As(err, &refused)
	return refused
}

// requestError adds the reason to an error of a request; nil stays nil.
func requestError(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, client.ErrForbidden) {
		return &reconcileError{reasonOwnerNotAdmitted, fmt.Errorf("the sidecar does not let the bridge %s: its --owners must admit %q, and --allow-uids or --allow-gids this process",
			what, planner.OwnerPrefix+"*")}
	}
	return unavailable(what, err)
}

func unavailable(what string, err error) error {
	return &reconcileError{reasonSidecarUnavailable, fmt.Errorf("cannot %s: %w", what, err)}
}
