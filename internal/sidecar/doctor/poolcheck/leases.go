package poolcheck

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
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
		if ofTrial(l) {
			all = append(all, check.Warn("unless a trial is running, run `delegated-ipam profile try host-local` with the same network: it prints the command that releases the address",
				"address %s is leased to %s (%s), of `profile try`", l.IP, holder(l), s.File(l.IP)).Of(l.IP))
		}
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

// ofTrial reports whether a lease is that of `profile try`.
func ofTrial(l hostlocal.Lease) bool {
	return strings.HasPrefix(l.ContainerID, containerid.TrialPrefix)
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
	return check.Warn("allocate for the owner of the container ID and release its address again (`delegated-ipam id OWNER` prints the ID of an owner); for an unknown owner run host-local's DEL with this ID and interface",
		"address %s is leased to %s (%s), but the sidecar does not list the address with that container ID and interface", l.IP, holder(l), s.File(l.IP)).Of(l.IP)
}

func lost(s check.Store, l hostlocal.Lease) check.Finding {
	return check.Fail("make sure that the sidecar and the plugin of the pods use the same directory; after --verify-interval the owner's next request gets the address again, or another one if it is in use",
		"the sidecar lists address %s with %s, but %s", l.IP, holder(l), stored(s, l.IP)).Of(l.IP)
}

// holder describes the holder of a lease.
func holder(l hostlocal.Lease) string {
	return fmt.Sprintf("container ID %s, interface %q", l.ContainerID, l.Interface)
}

// stored describes what the store has for an address that it does not lease to its holder.
func stored(s check.Store, ip netip.Addr) string {
	for _, l := range s.Leases {
		if l.IP == ip {
			return fmt.Sprintf("it is leased to %s (%s)", holder(l), s.File(ip))
		}
	}
	return fmt.Sprintf("there is no lease of it (%s): the plugin may allocate the address again", s.File(ip))
}
