package hostlocal

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// Entry is the file of one address.
type Entry struct {
	// IP is the address, by the name of the file.
	IP netip.Addr
	// Lease is the content; the zero Lease with Err.
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
