package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

// store is the content of the lease files of a pool's network.
type store struct {
	leases []hostlocal.Lease
	// stale are the addresses whose files contain no container ID, and removed the addresses whose
	// stale files were removed.
	stale, removed []netip.Addr
	// unexpected are the addresses whose files are not ones that host-local creates.
	unexpected []netip.Addr
	// err is why the store could not be found, read or repaired.
	err error
}

// hasStore reports whether the store of the pool is known.
func (p pool) hasStore() bool {
	return p.known() && p.network.IPAMType == plugin.HostLocal && filepath.IsAbs(p.stateDir.path)
}

// file returns the path of the file of an address.
func (p pool) file(ip netip.Addr) string { return filepath.Join(p.stateDir.path, ip.String()) }

// collectStore reads the store of a pool under host-local's own lock, for which it waits until ctx
// ends. With repair it removes files without a container ID. It reads no file of another plugin.
func (p *pool) collectStore(ctx context.Context, repair bool) {
	switch {
	case p.hasStore():
		p.store.err = p.store.collect(ctx, p.stateDir.path, repair)
	case p.known() && p.network.IPAMType == plugin.HostLocal:
		p.store.err = fmt.Errorf("ipam.%s in %s is %q; expected an absolute path: a relative one depends on the working directory of the plugin", p.plugin.StateKey, p.network.File, p.stateDir.path)
	}
}

func (s *store) collect(ctx context.Context, path string, repair bool) error {
	dir, err := hostlocal.Open(path, repair)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // host-local creates it with the first address
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	unlock, err := hostlocal.Lock(ctx, dir, repair)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.read(dir); err != nil || !repair {
		return err
	}
	return s.removeStale(dir)
}

func (s *store) read(dir *os.Root) error {
	entries, err := hostlocal.List(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case errors.Is(e.Err, hostlocal.ErrUnexpected):
			s.unexpected = append(s.unexpected, e.IP)
		case errors.Is(e.Err, hostlocal.ErrEmpty):
			s.stale = append(s.stale, e.IP)
		case e.Err != nil:
			return e.Err
		default:
			s.leases = append(s.leases, e.Lease)
		}
	}
	return nil
}

// removeStale removes the stale files. They were read under the lock that is still held, so
// no host-local is about to write to one of them. The directory is synced: a power loss must
// not restore a file that was reported as removed.
func (s *store) removeStale(dir *os.Root) error {
	for len(s.stale) > 0 {
		name := s.stale[0].String()
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return files.AtPath(dir, name, err)
		}
		s.removed, s.stale = append(s.removed, s.stale[0]), s.stale[1:]
	}
	return files.AtPath(dir, ".", files.Sync(dir.Open(".")))
}

// checkStore checks that the store of a pool's plugin can be read and has no unexpected
// files. Only host-local's store is known.
func checkStore(_ *Observations, p pool, r *report) {
	s := p.store
	if p.network.IPAMType != plugin.HostLocal {
		r.ok("the store is not checked: only the files of host-local are known, and the plugin is %s", p.network.IPAMType)
		return
	}
	for _, ip := range s.unexpected {
		r.warn("inspect and remove it",
			"%s is not a file that host-local creates: it blocks address %s, and host-local can hang on it", p.file(ip), ip).Address = ip.String()
	}
	if s.err != nil {
		r.fail("run doctor as the daemon's user and with its mounts; if the file is faulty, fix it", "%s", s.err)
	}
	r.clean("%s has %d leases", p.stateDir.path, len(s.leases))
}

// checkStaleLeaseFiles checks that no file in host-local's store blocks an address without a
// container ID.
func checkStaleLeaseFiles(_ *Observations, p pool, r *report) {
	s := p.store
	for _, ip := range s.removed {
		r.ok("%s contained no container ID and was removed; address %s is free", p.file(ip), ip).Address = ip.String()
	}
	calls := "CNI call"
	if p.status.Embedded != "" {
		calls = "call of the program"
	}
	for _, ip := range s.stale {
		r.warn("`delegated-ipam doctor --repair` removes it",
			"%s contains no container ID: a killed host-local left it, and no %s frees address %s", p.file(ip), calls, ip).Address = ip.String()
	}
	if s.err == nil {
		r.clean("%s has no stale lease file", p.stateDir.path)
	}
}

// checkLeases checks that the store of host-local and the daemon's list have the same addresses.
func checkLeases(o *Observations, p pool, r *report) {
	s, network := p.store, p.network.Name
	if o.StatusErr != nil || o.ListErr != nil || s.err != nil {
		return
	}
	for _, l := range s.leases {
		if ofProfileTry(l) {
			r.warn("unless `profile try` is running, run `delegated-ipam profile try host-local` with the same network: it prints the command that releases the address",
				"address %s is leased to %s (%s), of `profile try`", l.IP, holder(l), p.file(l.IP)).Address = l.IP.String()
		}
		if containerid.Match(l.ContainerID) && !explains(o.Before, network, l) && !explains(o.After, network, l) {
			f := r.warn("unless an owner uses it, as after a lost journal: review the file of `delegated-ipam doctor --report FILE`, then `delegated-ipam doctor --repair --report FILE` releases what is in it",
				"address %s is leased to %s (%s), but the daemon does not list the address with that container ID and interface", l.IP, holder(l), p.file(l.IP))
			f.Address, f.Lease = l.IP.String(), &Lease{ContainerID: l.ContainerID, Interface: l.Interface}
			if info, err := os.Lstat(p.file(l.IP)); err == nil {
				f.Lease.Written = info.ModTime()
			}
		}
	}
	held := heldLeases(o.Before, network)
	for _, l := range heldLeases(o.After, network) {
		if slices.Contains(held, l) && !slices.Contains(s.leases, l) {
			r.fail("make sure that the daemon and the plugin of the pods use the same directory; after --verify-interval the owner's next request gets the address again, or another one if it is in use",
				"the daemon lists address %s with %s, but %s", l.IP, holder(l), p.stored(l.IP)).Address = l.IP.String()
		}
	}
	r.clean("all %d held addresses of network %q are in the store, and no other lease is the daemon's", len(held), network)
}

func ofProfileTry(l hostlocal.Lease) bool {
	return strings.HasPrefix(l.ContainerID, containerid.TryPrefix)
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

// heldLeases returns the leases that the plugin must have by a list. It still has the leases of
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

func holder(l hostlocal.Lease) string {
	return fmt.Sprintf("container ID %s, interface %q", l.ContainerID, l.Interface)
}

// stored describes what the store has for an address that it does not lease to its holder.
func (p pool) stored(ip netip.Addr) string {
	for _, l := range p.store.leases {
		if l.IP == ip {
			return fmt.Sprintf("it is leased to %s (%s)", holder(l), p.file(ip))
		}
	}
	return fmt.Sprintf("there is no lease of it (%s): the plugin may allocate the address again", p.file(ip))
}
