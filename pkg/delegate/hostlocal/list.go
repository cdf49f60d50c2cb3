package hostlocal

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
)

// Entry is what the file of one address holds.
type Entry struct {
	IP    netip.Addr
	Lease Lease
	// Err is why the file has no lease: ErrEmpty, ErrUnexpected, or it cannot be read.
	Err error
}

// List reads the file of each address in a network's folder. A file that is removed
// meanwhile is left out.
func List(dir *os.Root) ([]Entry, error) {
	files, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, f := range files {
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
