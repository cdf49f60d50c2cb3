package hostlocal

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

const (
	leaseMode = 0o600
	// lastReserved is the name without the number of the range set, and maxLastReserved the size in bytes that
	// no such file has.
	lastReserved    = "last_reserved_ip."
	maxLastReserved = 64
)

// locked is the directory of a network under its lock, as host-local's allocator uses it. It differs from host-local's
// own store: files are synced (end), the index replaces the reading of all files, an empty file is free, and a file that
// cannot be removed, or may hide the only lease, is an error. The allocator ignores the errors of Lock, so the lock is
// taken before.
type locked struct {
	dir *os.Root
	// deadline is when the call ends that waits for an address; zero for never.
	deadline time.Time
	// taken reports whether others have an address without a lease; nil for none.
	taken func(netip.Addr) bool
	// index is that of the network, nil in a directory that cannot be watched.
	*index
	// made are new leases to sync, and changed reports that names changed.
	made    []*os.File
	changed bool
}

var _ backend.Store = (*locked)(nil)

func (l *locked) Lock() error   { return nil }
func (l *locked) Unlock() error { return nil }
func (l *locked) Close() error  { return nil }

// Reserve creates the file of an address, unless there is one. An empty one counts as none: under the lock no program is
// about to write it. It is of a killed program, which has returned no result, or of one before a power loss; what a
// record has is refused by the engine.
func (l *locked) Reserve(id, ifname string, ip net.IP, rangeID string) (bool, error) {
	if !l.deadline.IsZero() && time.Now().After(l.deadline) {
		return false, errors.New("no free address was found within the time limit of the call") // the range is large and full
	}
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return false, errors.New("not an address: " + ip.String())
	}
	addr = addr.Unmap()
	name := addr.String()
	if l.index != nil {
		if of, taken := l.leases[addr]; taken && of.id != incomplete {
			return false, nil
		}
	}
	if l.taken != nil && l.taken(addr) {
		return false, nil
	}
	failpoint.Reach(failpoint.LeaseMaking)
	f, err := l.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, leaseMode)
	if errors.Is(err, fs.ErrExist) {
		if _, err := Read(l.dir, addr); !errors.Is(err, ErrEmpty) {
			return false, nil
		}
		if f, err = l.dir.OpenFile(name, os.O_WRONLY, leaseMode); err != nil {
			return false, nil //nolint:nilerr // it cannot be used
		}
	}
	if err != nil {
		return false, files.AtPath(l.dir, name, err)
	}
	l.changed = true
	failpoint.Reach(failpoint.LeaseMade)
	_, err = f.WriteString(strings.TrimSpace(id) + lineBreak + ifname)
	failpoint.Reach(failpoint.LeaseWritten)
	l.made = append(l.made, f)
	if l.index != nil { // for further changes under the lock; later ones read the file, because it has changed
		l.put(addr, l.hashes(Lease{ContainerID: strings.TrimSpace(id), Interface: ifname}))
	}
	if err == nil {
		err = l.setLastReserved(rangeID, addr)
		failpoint.Reach(failpoint.LeaseReserved)
	}
	if err != nil {
		err = undone(files.In(l.dir, err), l.remove(addr))
	}
	return err == nil, err
}

func (l *locked) setLastReserved(rangeID string, ip netip.Addr) error {
	info, err := l.dir.Lstat(lastReserved + rangeID)
	if err == nil && !info.Mode().IsRegular() {
		return files.AtPath(l.dir, lastReserved+rangeID, ErrUnexpected)
	}
	text := ip.String()
	f, openErr := l.dir.OpenFile(lastReserved+rangeID, os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK, leaseMode)
	if openErr != nil {
		return files.AtPath(l.dir, lastReserved+rangeID, openErr)
	}
	_, writeErr := f.WriteString(text)
	// One that is emptied first is written to the disk when it is closed (ext4(5), auto_da_alloc).
	if err == nil && info.Size() > int64(len(text)) {
		writeErr = errors.Join(writeErr, f.Truncate(int64(len(text))))
	}
	err = errors.Join(writeErr, f.Close())
	return files.AtPath(l.dir, lastReserved+rangeID, err)
}

// LastReservedIP returns the address that the last ADD has got from a range set. One that cannot be read is none: the
// allocator would write that to the log of the process, and begins with the first address then.
func (l *locked) LastReservedIP(rangeID string) (net.IP, error) {
	data, err := files.ReadIn(l.dir, lastReserved+rangeID, maxLastReserved)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	return net.ParseIP(string(data)), nil
}

// ReleaseByID removes the leases of a container interface.
func (l *locked) ReleaseByID(id, ifname string) error {
	held, err := l.leasesOf(id, ifname)
	for _, ip := range held {
		err = errors.Join(err, l.remove(ip))
	}
	return err
}

// leasesOf returns the addresses of a container interface or, if there are none, those of its container without an
// interface, as host-local before v0.8.0 wrote them. A file that cannot be read is an error only if there is none.
func (l *locked) leasesOf(id, ifname string) (held []netip.Addr, err error) {
	for _, of := range []string{ifname, ""} {
		if held, err = l.held(id, of); len(held) > 0 {
			return held, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// GetByID returns the addresses of a container interface, and those of its container without an interface.
// They are in the order of their names, as host-local reads them.
func (l *locked) GetByID(id, ifname string) (all []net.IP) {
	for _, of := range []string{ifname, ""} {
		held, _ := l.held(id, of)
		for _, ip := range held {
			all = append(all, ip.AsSlice())
		}
	}
	slices.SortFunc(all, func(a, b net.IP) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// held returns the addresses whose files have exactly this content. A file that cannot be read may be one of them.
func (l *locked) held(id, ifname string) (held []netip.Addr, err error) {
	entries, err := l.entries(id)
	for _, e := range entries {
		switch {
		case e.Err == nil && e.Lease.ContainerID == strings.TrimSpace(id) && e.Lease.Interface == ifname:
			held = append(held, e.IP)
		case unreadable(e.Err):
			err = e.Err
		}
	}
	return held, err
}

// unreadable reports whether an error hides a lease.
func unreadable(err error) bool {
	return err != nil && !errors.Is(err, ErrEmpty) && !errors.Is(err, ErrUnexpected)
}

// entries returns the files that may be of a container ID.
func (l *locked) entries(id string) ([]Entry, error) {
	if l.index != nil {
		return l.index.entries(strings.TrimSpace(id)), nil
	}
	return List(l.dir)
}

// keep removes the leases that are not valid: those of another interface, too, but not one without an interface of a
// container that is valid (GC of the CNI specification).
func (l *locked) keep(valid []Lease) (err error) {
	var others []Entry
	if l.index != nil {
		others = l.others(valid)
	} else if others, err = List(l.dir); err != nil {
		return err
	}
	for _, e := range others {
		isValid := func(v Lease) bool {
			return v.ContainerID == e.Lease.ContainerID && (v.Interface == e.Lease.Interface || e.Lease.Interface == "")
		}
		switch {
		case unreadable(e.Err):
			err = errors.Join(err, e.Err)
		case e.Err == nil && !slices.ContainsFunc(valid, isValid):
			err = errors.Join(err, l.remove(e.IP))
		}
	}
	return err
}

// release removes the leases that have ended. A file without an interface may be what an administrator reserved.
func (l *locked) release(ended func(of Lease, written time.Time) bool) (released []Lease, err error) {
	entries, err := List(l.dir)
	for _, e := range entries {
		info, statErr := l.dir.Lstat(e.IP.String())
		if err != nil || statErr != nil || e.Err != nil || e.Lease.Interface == "" || !ended(e.Lease, info.ModTime()) {
			err = errors.Join(err, statErr)
			continue
		}
		if err = l.remove(e.IP); err == nil {
			released = append(released, e.Lease)
		}
	}
	return released, err
}

func (l *locked) remove(ip netip.Addr) error {
	failpoint.Reach(failpoint.LeaseRemoving)
	err := l.dir.Remove(ip.String())
	failpoint.Reach(failpoint.LeaseRemoved)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files.AtPath(l.dir, ip.String(), err)
	}
	l.changed = true
	if l.index != nil {
		l.forget(ip) // for further changes under the lock
	}
	return nil
}

// end makes the changes durable, all at the same time: on a journaling file system one commit has them all. The lock is
// not needed for it, so that concurrent calls share the flushes, too.
func (l *locked) end() error {
	failpoint.Reach(failpoint.LeaseSyncing)
	var all errgroup.Group
	for _, f := range l.made {
		all.Go(func() error { return files.Sync(f, nil) })
	}
	if l.changed {
		all.Go(func() error { return files.Sync(l.dir.Open(".")) })
	}
	err := all.Wait()
	failpoint.Reach(failpoint.LeaseSynced)
	return errors.Join(err, l.dir.Close())
}
