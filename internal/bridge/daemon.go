package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/unreachable"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// daemonClient allocates the node's slots at the daemon.
type daemonClient struct {
	api *client.Client
	// pool is the pool of the slots, node the name that the daemon must have.
	pool, node string
}

// slots returns the slots of the daemon, which serves these families.
func (s daemonClient) slots(ctx context.Context, families []string) ([]planner.Slot, error) {
	all, err := s.api.List(ctx)
	if err != nil {
		return nil, unavailable("list the daemon's addresses", s.explain(err))
	}
	var slots []planner.Slot
	for _, a := range all {
		if n, ours := planner.ParseOwner(a.Owner); ours && a.Pool == s.pool {
			slots = append(slots, planner.Slot{
				Number: n, Addresses: client.Allocated(a), Held: a.State == models.AttachmentStateHeld && !a.Lost,
				Outside: a.Range == models.AttachmentRangeOutside, Unconfigured: a.Range == models.AttachmentRangeUnconfigured,
				Unclaimed: unclaimed(a, families),
			})
		}
	}
	return slots, nil
}

// unclaimed returns the addresses of families that are served and that no request has claimed. None while an
// address that was given up is reserved: a claim of its family would end that.
func unclaimed(a *models.Attachment, families []string) (ips []netip.Addr) {
	for _, at := range a.Addresses {
		if len(a.GivenUp) == 0 && slices.Contains(families, at.Family) && !slices.Contains(a.Claims, at.Family) {
			ip, _ := netip.ParseAddr(at.IP) // List has checked it
			ips = append(ips, ip)
		}
	}
	return ips
}

// explain adds to the error of a request what to do if the daemon cannot be reached.
func (s daemonClient) explain(err error) error {
	return unreachable.Explain(s.api.Socket(), client.DefaultTimeout, err)
}

// storeOnNode is the store of a plugin that keeps its allocations on the node. Its range is the node's
// own: two nodes with one range would allocate the same addresses.
const storeOnNode = "node"

// served describes a daemon.
type served struct {
	// store is the field of the plugin's profile; empty while the pool has no configuration.
	store    string
	families []string
}

// checkNode fails if the daemon serves another node: its addresses must not be published on this one.
func (s daemonClient) checkNode(ctx context.Context) (serves served, err error) {
	response, err := s.api.Status(ctx)
	if err != nil {
		return serves, unavailable("get the daemon's status", s.explain(err))
	}
	status := response.DelegatedIpam
	if status.NodeName != "" && status.NodeName != s.node {
		return serves, fail(reasonNodeMismatch, fmt.Errorf("the daemon serves node %q, and --node-name is %q; expected the daemon of this node. Nothing was written. Give both the same --node-name",
			status.NodeName, s.node))
	}
	var pools []string
	for _, p := range status.Pools {
		pools = append(pools, p.Pool)
		if p.Pool == s.pool {
			serves.store, _ = p.ProfileFacts["store"].(string)
		}
	}
	if len(pools) > 0 && !slices.Contains(pools, s.pool) {
		return serves, fail(reasonNodeMismatch, fmt.Errorf("the daemon has the pools %q, and --pool is %q; expected one of them. Nothing was written", pools, s.pool))
	}
	if serves.families, err = s.api.Families(ctx); err != nil {
		return serves, unavailable("get the daemon's configuration", s.explain(err))
	}
	return serves, nil
}

// acquire allocates a slot, with an address of every enabled family. None of them is outside the ranges.
func (s daemonClient) acquire(ctx context.Context, n int) (planner.Slot, error) {
	owner, slot := planner.Owner(n), planner.Slot{Number: n, Held: true}
	response, err := s.api.Allocate(ctx, owner, client.AllocateOptions{Pool: s.pool})
	if err != nil {
		return slot, requestError("acquire an address for "+owner, s.explain(err))
	}
	for _, text := range []string{response.Address.IPv4, response.Address.IPv6} {
		if ip, err := netip.ParseAddr(text); err == nil {
			slot.Addresses = append(slot.Addresses, ip)
		}
	}
	return slot, nil
}

// restore allocates exactly this address to a slot. also is the address of the other family that the
// slot had; the zero Addr if it is not known.
func (s daemonClient) restore(ctx context.Context, n int, ip, also netip.Addr) error {
	err := s.api.Restore(ctx, ip, planner.Owner(n), client.RestoreOptions{Pool: s.pool, Also: also})
	return requestError("restore "+ip.String(), s.explain(err))
}

// release releases an address of a slot. It succeeds if the slot has it no more.
func (s daemonClient) release(ctx context.Context, n int, ip netip.Addr) error {
	err := s.api.Release(ctx, ip, client.ReleaseOptions{Pool: s.pool, Owner: planner.Owner(n)})
	if errors.Is(err, client.ErrNotFound) {
		return nil
	}
	return requestError("release "+ip.String(), s.explain(err))
}

// exhaustedText matches the error texts of plugins without a free address. CNI does not define a code
// for that. host-local: "no IP addresses available in range set: …"; whereabouts: "Could not allocate
// IP in range: …"; Calico: "… no more free addresses …", "IPAM allocated only 0". Only the reason in log,
// Event and metrics depends on it.
var exhaustedText = regexp.MustCompile(`(?i)exhausted|could not allocate ip in range|allocated only \d+|` +
	`\b(no|not enough|insufficient|out of)\b.{0,30}\b(ips?|address(es)?)\b`)

// pluginText matches the error of a plugin call (call.Error), or of its result. The plugin is not the
// cause of others, such as a full disk or a missing configuration.
var pluginText = regexp.MustCompile(`\bplugin \S+ ([A-Z]+|returned) `)

// requestError adds the reason to an error of a request; nil stays nil. It is a refusal if only this
// request failed.
func requestError(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, client.ErrForbidden) {
		return fail(reasonOwnerNotAdmitted, fmt.Errorf("the daemon does not permit the bridge to %s: its --owners must admit %q, and --allow-uids or --allow-gids this process",
			what, planner.OwnerPrefix+"*"))
	}
	var response *client.Error
	if !errors.As(err, &response) {
		return unavailable(what, err)
	}
	f := &failure{reasonRequestRefused, fmt.Errorf("cannot %s: %w", what, err), true, response.RetryAfter}
	switch {
	case response.RetryAfter > 0:
		f.reason = reasonDaemonBusy
	case exhaustedText.MatchString(response.Reason):
		f.reason = reasonPoolExhausted
	case pluginText.MatchString(response.Reason):
		f.reason = reasonPluginFailed
	}
	return f
}

func unavailable(what string, err error) error {
	return fail(reasonDaemonUnavailable, fmt.Errorf("cannot %s: %w", what, err))
}
