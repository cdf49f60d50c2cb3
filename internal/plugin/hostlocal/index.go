package hostlocal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// index answers what the store holds without reading the whole directory again: after each change of a file the
// kernel queues an event, before the system call that made the change returns (inotify(7)). A file
// without an event since it was read is as it was read. So an index whose events have been taken
// answers as reading everything would (docs/design/how-it-works.md, The index of a store).
type index struct {
	// dir is the directory. While it is open, no other directory gets its inode.
	dir  *os.Root
	info fs.FileInfo
	// events is a descriptor of inotify.
	events int
	// leases has the hashes of the file of each address, and byID the addresses of each container ID.
	leases map[netip.Addr]hashes
	byID   map[uint64][]netip.Addr
	seed   maphash.Seed
	buffer [4 << 10]byte // of events
}

// hashes are those of the container ID of a lease, and of that with the interface.
type hashes struct{ id, whole uint64 }

// incomplete is the hash of the container ID of a file that has no complete lease: it may get any.
const incomplete = 0

func (x *index) idHash(containerID string) uint64 { return maphash.String(x.seed, containerID) | 1 }

func (x *index) hashes(l Lease) hashes {
	return hashes{x.idHash(l.ContainerID), maphash.String(x.seed, l.ContainerID+lineBreak+l.Interface)}
}

// errUnwatched is the error for a directory that may change without an event.
var errUnwatched = errors.New("not on a local file system")

// newIndex reads a directory, and watches it from before the reading on.
func newIndex(path string) (*index, error) {
	dir, err := OpenDir(path)
	if err != nil {
		return nil, err
	}
	self, err := dir.Open(".")
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	defer self.Close()
	x := &index{dir: dir, leases: map[netip.Addr]hashes{}, byID: map[uint64][]netip.Addr{}, seed: maphash.MakeSeed()}
	if x.events, err = watch(self); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	names, err := self.Readdirnames(-1)
	if err == nil {
		x.info, err = self.Stat()
	}
	if err != nil {
		x.close()
		return nil, err
	}
	for _, name := range names {
		x.read(name)
	}
	return x, nil
}

// watch returns a descriptor of inotify with the changes of the files in a directory.
func watch(dir *os.File) (events int, err error) {
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &on); err != nil {
		return 0, err
	}
	local := []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC}
	if !slices.Contains(local, int64(on.Type)) { //nolint:unconvert // the type depends on the architecture
		return 0, errUnwatched
	}
	if events, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return 0, err
	}
	// Without the events of removals the index would be right, too, but would grow.
	const changes = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM
	if _, err := unix.InotifyAddWatch(events, fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), changes); err != nil {
		return 0, errors.Join(err, unix.Close(events))
	}
	return events, nil
}

// close closes what was only read.
func (x *index) close() {
	_ = x.dir.Close()
	_ = unix.Close(x.events)
}

// read reads the file of a name.
func (x *index) read(name string) {
	ip, ok := Address(name)
	if !ok {
		return
	}
	lease, err := Read(x.dir, ip)
	var of hashes
	if err == nil && lease.Interface != "" {
		of = x.hashes(lease)
	}
	if errors.Is(err, fs.ErrNotExist) {
		x.forget(ip)
	} else {
		x.put(ip, of)
	}
}

// put sets the hashes of the file of an address.
func (x *index) put(ip netip.Addr, of hashes) {
	if before, known := x.leases[ip]; known && before == of {
		return
	}
	x.forget(ip)
	x.leases[ip] = of
	x.byID[of.id] = append(x.byID[of.id], ip)
}

func (x *index) forget(ip netip.Addr) {
	of, known := x.leases[ip]
	if !known {
		return
	}
	delete(x.leases, ip)
	others := slices.DeleteFunc(x.byID[of.id], func(other netip.Addr) bool { return other == ip })
	if x.byID[of.id] = others; len(others) == 0 {
		delete(x.byID, of.id)
	}
}

// update reads the files that have changed. It reports false if the index is not that of the path, or
// has missed changes.
func (x *index) update(path string) bool {
	if info, err := os.Stat(path); err != nil || !os.SameFile(info, x.info) {
		return false
	}
	changed := map[string]bool{}
	for {
		n, err := unix.Read(x.events, x.buffer[:])
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return false
		}
		for events := x.buffer[:n]; len(events) > 0; {
			mask := binary.NativeEndian.Uint32(events[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
			if mask&(unix.IN_Q_OVERFLOW|unix.IN_IGNORED) != 0 {
				return false
			}
			changed[strings.TrimRight(string(events[unix.SizeofInotifyEvent:end]), "\x00")] = true
			events = events[end:]
		}
	}
	for name := range changed {
		x.read(name)
	}
	return true
}

// entries returns the files that may have a lease of the container ID, read again.
func (x *index) entries(containerID string) []Entry {
	return x.readAgain(slices.Concat(x.byID[x.idHash(containerID)], x.byID[incomplete]))
}

// others returns the files that may have another lease than these, read again.
func (x *index) others(leases []Lease) []Entry {
	known := map[uint64]bool{}
	for _, l := range leases {
		known[x.hashes(l).whole] = true
	}
	var ips []netip.Addr
	for ip, of := range x.leases {
		if of.id == incomplete || !known[of.whole] {
			ips = append(ips, ip)
		}
	}
	return x.readAgain(ips)
}

func (x *index) readAgain(ips []netip.Addr) (all []Entry) {
	for _, ip := range ips {
		if lease, err := Read(x.dir, ip); !errors.Is(err, fs.ErrNotExist) {
			all = append(all, Entry{IP: ip, Lease: lease, Err: err})
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.IP.Compare(b.IP) })
	return all
}
