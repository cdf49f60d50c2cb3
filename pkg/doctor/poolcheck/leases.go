package poolcheck

import (
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/pkg/doctor/check"
)

// Leases checks that the store of host-local and the sidecar's list have the same
// addresses.
var Leases = check.Check{Name: "leases", Run: func(o *check.Observations) []check.Finding {
	if o.StatusErr != nil || o.ListErr != nil {
		return nil
	}
	var all []check.Finding
	for _, s := range o.KnownStores() {
		if s.IsHostLocal() && s.Err == nil {
			for _, f := range leases(s, o.Before, o.After) {
				all = append(all, f.OfPool(s.Pool))
			}
		}
	}
	return all
}}

func leases(s check.Store, before, after []*models.Attachment) []check.Finding {
	var all []check.Finding
	for _, l := range s.Leases {
		if containerid.Match(l.ContainerID) && !explains(before, s.Network, l) && !explains(after, s.Network, l) {
			all = append(all, leaked(s, l))
		}
	}
	held := heldLeases(before, s.Network)
	for _, l := range heldLeases(after, s.Network) {
		if slices.Contains(held, l) && !slices.Contains(s.Leases, l) {
			all = append(all, lost(s, l))
		}
	}
	if len(all) == 0 {
		all = append(all, check.Pass("all %d held addresses of network %q are in the store, and no other lease is the sidecar's", len(held), s.Network))
	}
	return all
}

// explains reports whether a list accounts for a lease. During an ADD or DEL the list lacks
// addresses that only the plugin knows yet.
func explains(list []*models.Attachment, network string, l hostlocal.Lease) bool {
	return slices.ContainsFunc(list, func(a *models.Attachment) bool {
		if a.Network != network || a.ContainerID != l.ContainerID || a.Interface != l.Interface {
			return false
		}
		inProgress := a.State == models.AttachmentStateAdding || a.State == models.AttachmentStateReleasing
		return inProgress || slices.ContainsFunc(a.Addresses, func(at *models.AttachmentAddress) bool { return at.IP == l.IP.String() })
	})
}

// heldLeases returns the leases that the plugin must have by a list. It still has those of
// an attachment in cooldown.
func heldLeases(list []*models.Attachment, network string) []hostlocal.Lease {
	var all []hostlocal.Lease
	for _, a := range list {
		if a.Network != network || a.State != models.AttachmentStateHeld && a.State != models.AttachmentStateCooldown {
			continue
		}
		for _, at := range a.Addresses {
			// An invalid address cannot be in the store either.
			if ip, err := netip.ParseAddr(at.IP); err == nil {
				all = append(all, hostlocal.Lease{IP: ip, ContainerID: a.ContainerID, Interface: a.Interface})
			}
		}
	}
	return all
}

func leaked(s check.Store, l hostlocal.Lease) check.Finding {
	return check.Warn("allocate for its owner and release it again (`delegated-ipam id OWNER` prints the ID of an owner); for an unknown owner run host-local's DEL with this ID and interface",
		"%s is leased to container ID %s, interface %q, for which the sidecar does not list it", s.File(l.IP), l.ContainerID, l.Interface).Of(l.IP)
}

func lost(s check.Store, l hostlocal.Lease) check.Finding {
	return check.Fail("make sure that the sidecar and the plugin of the pods use the same directory; after --verify-interval the owner's next request gets the address again, or another one if it is in use",
		"the sidecar lists it with container ID %s, interface %q, but %s does not: the plugin may allocate it again", l.ContainerID, l.Interface, s.File(l.IP)).Of(l.IP)
}
