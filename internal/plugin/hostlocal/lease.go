// Package hostlocal is the plugin host-local in this process (Stores.Call), and reads its store: one file per
// address in dataDir/<network>, whose name is the address and whose two lines are the container ID and the
// interface (containernetworking/plugins, plugins/ipam/host-local/backend/disk/backend.go; the same
// from v1.0.1 to v1.10.0). Programs share the store at every moment: changes are made under host-local's lock.
// A lookup takes no lock and writes nothing, so it cannot disturb a running host-local.
package hostlocal

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

var (
	// ErrEmpty is the error for a file without a container ID: host-local was killed between
	// creating and writing it, or is about to write it.
	ErrEmpty = errors.New("names no container ID")
	// ErrUnexpected is the error for a file that host-local never creates.
	ErrUnexpected = errors.New("not a lease file of host-local; expected a regular file with a container ID and an interface")
)

// lineBreak is between the lines of a lease file.
const lineBreak = "\r\n"

// MaxLease is a size in bytes that no lease file has: it is above any container ID and interface.
const MaxLease = 4 << 10

// Lease is one address that host-local holds.
type Lease struct {
	// IP is the address, by the name of the file.
	IP netip.Addr
	// ContainerID and Interface are CNI_CONTAINERID and CNI_IFNAME of the ADD. Interface is empty in
	// a file that was not written to its end, and in one of a host-local before v0.8.0.
	ContainerID, Interface string
}

// Is reports whether the lease is of a container ID and an interface. It is not known for a file that
// may not have been written to its end.
func (l Lease) Is(containerID, ifname string) (is, known bool) {
	switch {
	case l.Interface == "":
		return false, false
	case l.ContainerID != containerID:
		return false, true
	case l.Interface == ifname:
		return true, true
	default:
		return false, !strings.HasPrefix(ifname, l.Interface)
	}
}

// Address returns the address that a file name is; false for another name, such as "lock" and
// "last_reserved_ip.0". host-local writes each address in one form only. Another form, such as
// "FD00::5" for "fd00::5", is not its file.
func Address(name string) (ip netip.Addr, ok bool) {
	ip, err := netip.ParseAddr(name)
	return ip, err == nil && ip.Zone() == "" && ip.String() == name
}

// OpenDir opens a network's directory, also through a symbolic link. It does not block on a FIFO.
func OpenDir(path string) (*os.Root, error) {
	// With the slash open(2) fails for everything but a directory, and does not wait for the writer
	// of a FIFO.
	dir, err := os.OpenRoot(path + "/")
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		at.Path = path
	}
	return dir, err
}

// Read reads the file of an address in a network's directory, through no symbolic link. Errors name the
// file, and wrap fs.ErrNotExist if there is none, and ErrEmpty or ErrUnexpected if it is not a lease.
func Read(dir *os.Root, ip netip.Addr) (Lease, error) {
	name := ip.String()
	data, err := files.ReadIn(dir, name, MaxLease-1)
	if _, ok := errors.AsType[files.UnfitError](err); ok {
		err = ErrUnexpected
	}
	var lease Lease
	if err == nil {
		lease, err = parse(data)
	}
	if err != nil {
		return Lease{}, files.AtPath(dir, name, err)
	}
	lease.IP = ip
	return lease, nil
}

// parse parses the content of a lease file. White space around it is ignored, as by host-local.
func parse(data []byte) (Lease, error) {
	text := strings.TrimSpace(string(data))
	if text == "" {
		return Lease{}, ErrEmpty
	}
	id, ifname, _ := strings.Cut(text, lineBreak)
	if utils.ValidateContainerID(id) != nil || ifname != "" && utils.ValidateInterfaceName(ifname) != nil {
		return Lease{}, ErrUnexpected
	}
	return Lease{ContainerID: id, Interface: ifname}, nil
}

// Entry is the file of one address.
type Entry struct {
	// IP is the address, by the name of the file.
	IP    netip.Addr
	Lease Lease
	// Err is why the file has no lease: ErrEmpty, ErrUnexpected, or an error of reading it.
	Err error
}

// List reads the file of each address in a network's directory, in the order of their names. A file
// that is removed meanwhile is left out. Errors name the file.
func List(dir *os.Root) ([]Entry, error) {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return nil, files.AtPath(dir, ".", err)
	}
	var all []Entry
	for _, f := range entries {
		ip, ok := Address(f.Name())
		if !ok {
			continue
		}
		lease, err := Read(dir, ip)
		if !errors.Is(err, fs.ErrNotExist) {
			all = append(all, Entry{IP: ip, Lease: lease, Err: err})
		}
	}
	return all, nil
}
