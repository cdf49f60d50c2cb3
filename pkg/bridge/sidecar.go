package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/client"
	"github.com/delegated-ipam/delegated-ipam/client/daemon"
	"github.com/delegated-ipam/delegated-ipam/client/ipam"
	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/pkg/sidecar"
)

// sidecarLimit is how long a request may take: as Cilium's own client (pkg/client).
const sidecarLimit = 90 * time.Second

// stateHeld is the state of an attachment that the plugin holds (swagger.yaml, Attachment).
const stateHeld = "held"

// source is the sidecar, as where addresses come from.
type source struct {
	client *client.DelegatedIpam
	// pool is the one that slots are of, node the name that the sidecar must have.
	pool, node string
}

// slots are the node's attachments.
func (s source) slots(ctx context.Context) ([]planner.Slot, error) {
	ok, err := s.client.Ipam.GetIpamContext(ctx, ipam.NewGetIpamParams().WithTimeout(sidecarLimit))
	if err != nil {
		return nil, unavailable("list the addresses", err)
	}
	var slots []planner.Slot
	for _, a := range ok.Payload {
		n, ours := planner.Number(a.Owner)
		if !ours || a.Pool != s.pool {
			continue
		}
		ips, err := claimed(a)
		if err != nil {
			return nil, unavailable("list the addresses", err)
		}
		slots = append(slots, planner.Slot{Number: n, Addresses: ips, Held: a.State == stateHeld && !a.Lost})
	}
	return slots, nil
}

// claimed are the addresses that are handed out: of several of a family the last
// one (docs/api.md, GET /ipam).
func claimed(a *models.Attachment) ([]netip.Addr, error) {
	byFamily := map[string]netip.Addr{}
	for _, at := range a.Addresses {
		ip, err := netip.ParseAddr(at.IP)
		if err != nil {
			return nil, fmt.Errorf("attachment of %s: %w", a.Owner, err)
		}
		byFamily[at.Family] = ip
	}
	var ips []netip.Addr
	for _, family := range a.Claims {
		if ip, there := byFamily[family]; there {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return ips, nil
}

// check refuses the sidecar of another node: its addresses are not for this one.
func (s source) check(ctx context.Context) error {
	ok, err := s.client.Daemon.GetHealthzContext(ctx, daemon.NewGetHealthzParams().WithTimeout(sidecarLimit))
	if err != nil {
		return unavailable("ask its status", err)
	}
	own := ok.Payload.DelegatedIpam
	if own == nil || own.NodeName == "" || own.NodeName == s.node {
		return nil
	}
	return &trouble{anotherNode, fmt.Errorf("the sidecar serves node %q, and --node-name is %q; expected the sidecar of this node. Nothing was written. Give both the same --node-name",
		own.NodeName, s.node)}
}

// acquire makes the sidecar hold a slot, with every family that is on. That the
// plugin has no address is errExhausted.
func (s source) acquire(ctx context.Context, n int) error {
	owner := planner.Owner(n)
	params := ipam.NewPostIpamParams().WithTimeout(sidecarLimit).WithOwner(&owner).WithPool(&s.pool)
	_, err := s.client.Ipam.PostIpamContext(ctx, params)
	if refused := refusal(err); refused != nil && refused.Code == http.StatusBadGateway && refused.RetryAfter == "" {
		return fmt.Errorf("%w: %w", errExhausted, err)
	}
	return failed("acquire an address for "+owner, err)
}

// restore makes the sidecar hold exactly this address for a slot. That it does
// not is errRefused.
func (s source) restore(ctx context.Context, n int, ip netip.Addr) error {
	owner := planner.Owner(n)
	params := ipam.NewPostIpamIPParams().WithTimeout(sidecarLimit).WithIP(ip.String()).WithOwner(&owner).WithPool(&s.pool)
	_, err := s.client.Ipam.PostIpamIPContext(ctx, params)
	if refused := refusal(err); refused != nil && refused.Code != http.StatusForbidden && refused.RetryAfter == "" {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return failed("restore "+ip.String(), err)
}

// free gives an address back. One that is not handed out is no error: it has
// been given back before.
func (s source) free(ctx context.Context, ip netip.Addr) error {
	params := ipam.NewDeleteIpamIPParams().WithTimeout(sidecarLimit).WithIP(ip.String()).WithPool(&s.pool)
	_, err := s.client.Ipam.DeleteIpamIPContext(ctx, params)
	if refused := refusal(err); refused != nil && refused.Code == http.StatusNotFound {
		return nil
	}
	return failed("release "+ip.String(), err)
}

func refusal(err error) *sidecar.Refusal {
	var refused *sidecar.Refusal
	errors.As(err, &refused)
	return refused
}

// failed is a request that did not succeed; nil for one that did.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	if refused := refusal(err); refused != nil && refused.Code == http.StatusForbidden {
		return &trouble{notAdmitted, fmt.Errorf("the sidecar does not let the bridge %s: its --owners must admit %q, and --allow-uids or --allow-gids this process",
			what, planner.OwnerPrefix+"*")}
	}
	return unavailable(what, err)
}

func unavailable(what string, err error) error {
	return &trouble{sidecarUnavailable, fmt.Errorf("the sidecar could not be asked to %s: %w", what, err)}
}
