package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
)

// leases compares a store with the sidecar's list, address by address.
func (s Sight) leases(of Store) []Finding {
	var all []Finding
	for _, l := range of.Leases {
		if containerid.Match(l.ContainerID) && !of.knownIn(s.Before, l) && !of.knownIn(s.After, l) {
			all = append(all, of.leaked(l))
		}
	}
	held := of.heldIn(s.Before)
	for _, l := range of.heldIn(s.After) {
		if slices.Contains(held, l) && !slices.Contains(of.Leases, l) {
			all = append(all, of.lost(l))
		}
	}
	if len(all) == 0 {
		all = []Finding{{
			Check: CheckLeases, Pool: of.Pool, State: OK,
			Seen: fmt.Sprintf("all %d addresses that are held in network %q are in the store, and no other of ours is", len(held), of.Network),
		}}
	}
	return all
}

// knownIn tells whether a list accounts for a lease. Of an attachment whose ADD or
// DEL is on its way the list does not say every address: which it will be only the
// plugin knows yet.
func (s Store) knownIn(list []*models.Attachment, l hostlocal.Lease) bool {
	return slices.ContainsFunc(list, func(a *models.Attachment) bool {
		if a.Network != s.Network || a.ContainerID != l.ContainerID || a.Interface != l.Interface {
			return false
		}
		onItsWay := a.State == models.AttachmentStateAdding || a.State == models.AttachmentStateReleasing
		return onItsWay || slices.ContainsFunc(a.Addresses, func(at *models.AttachmentAddress) bool { return at.IP == l.IP.String() })
	})
}

// heldIn are the addresses that the plugin must hold by a list: of an attachment
// that is in cooldown it has not got them back yet.
func (s Store) heldIn(list []*models.Attachment) []hostlocal.Lease {
	var all []hostlocal.Lease
	for _, a := range list {
		if a.Network != s.Network || a.State != models.AttachmentStateHeld && a.State != models.AttachmentStateCooldown {
			continue
		}
		for _, at := range a.Addresses {
			// What is no address cannot be in the store either.
			if ip, err := netip.ParseAddr(at.IP); err == nil {
				all = append(all, hostlocal.Lease{IP: ip, ContainerID: a.ContainerID, Interface: a.Interface})
			}
		}
	}
	return all
}

func (s Store) leaked(l hostlocal.Lease) Finding {
	return Finding{
		Check: CheckLeases, Pool: s.Pool, Address: l.IP.String(), State: Warning,
		Seen: fmt.Sprintf("%s is held for container ID %s, interface %q, which the sidecar does not list with it", s.file(l.IP), l.ContainerID, l.Interface),
		Do:   "allocate for its owner and release that again (`delegated-ipam id OWNER` tells an owner's ID); for an owner that is not known run host-local's DEL with this ID and interface",
	}
}

func (s Store) lost(l hostlocal.Lease) Finding {
	return Finding{
		Check: CheckLeases, Pool: s.Pool, Address: l.IP.String(), State: Error,
		Seen: fmt.Sprintf("the sidecar lists it under container ID %s, interface %q, and %s does not say so: the plugin may give it to somebody else", l.ContainerID, l.Interface, s.file(l.IP)),
		Do:   "see that the sidecar and the plugin of the pods use one folder; the owner's next request after --verify-interval gets the address anew, or another one if it is gone",
	}
}
