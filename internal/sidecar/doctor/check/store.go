package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

// hostLocal is the only plugin type whose files are read.
const hostLocal = "host-local"

// Store is the content of the lease files of one pool's plugin.
type Store struct {
	// Pool and Network are names; Plugin is the plugin's type.
	Pool, Network, Plugin string
	// Dir is the network's directory; empty if the plugin is not host-local.
	Dir    string
	Leases []hostlocal.Lease
	// Stale are the addresses whose files contain no container ID, and Removed those whose
	// stale files were removed.
	Stale, Removed []netip.Addr
	// Unexpected are the addresses whose files are not ones that host-local creates.
	Unexpected []netip.Addr
	// Err is why the store could not be found, read or repaired.
	Err error
}

// IsHostLocal reports whether the plugin is host-local, so that its files were read.
func (s Store) IsHostLocal() bool { return s.Plugin == hostLocal }

// File returns the path of the file of an address.
func (s Store) File(ip netip.Addr) string { return filepath.Join(s.Dir, ip.String()) }

// collectStores reads the stores of pools, in their order, under host-local's own lock, for
// which it waits until ctx ends. With repair it removes files without a container ID. It
// reads no file of another plugin. Each Store has its own error.
func collectStores(ctx context.Context, pools []*models.PoolStatus, repair bool) []Store {
	stores := make([]Store, len(pools))
	for i, p := range pools {
		stores[i] = Store{Pool: p.Pool, Network: p.Network, Plugin: p.Plugin}
		if p.Network != "" && p.Plugin == hostLocal {
			stores[i].collect(ctx, p, repair)
		}
	}
	return stores
}

func (s *Store) collect(ctx context.Context, p *models.PoolStatus, repair bool) {
	if s.Dir, s.Err = storeDir(p); s.Err != nil {
		return
	}
	dir, err := openStore(s.Dir, repair)
	if errors.Is(err, fs.ErrNotExist) {
		return // host-local creates it with the first address
	}
	if err != nil {
		s.Err = err
		return
	}
	defer dir.Close()
	unlock, err := lockStore(ctx, dir, repair)
	if err != nil {
		s.Err = err
		return
	}
	defer unlock()
	if s.Err = s.read(dir); s.Err == nil && repair {
		s.Err = s.removeStale(dir)
	}
}

// openStore opens the directory of a network. For a change it must not be a symbolic link: a user
// who may write to the data directory could have files of another directory removed. Links in the
// path of the data directory itself are the administrator's and are followed.
func openStore(path string, change bool) (*os.Root, error) {
	dir, err := hostlocal.OpenDir(path)
	if err != nil || !change {
		return dir, err
	}
	opened, err := dir.Stat(".")
	named := opened
	if err == nil {
		named, err = os.Lstat(path)
	}
	if err == nil && !os.SameFile(opened, named) {
		err = fmt.Errorf("%s: a symbolic link, or replaced while it was opened; expected a directory, because a repair does not follow symbolic links", path)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// read reads the file of each address.
func (s *Store) read(dir *os.Root) error {
	entries, err := hostlocal.List(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case errors.Is(e.Err, hostlocal.ErrUnexpected):
			s.Unexpected = append(s.Unexpected, e.IP)
		case errors.Is(e.Err, hostlocal.ErrEmpty):
			s.Stale = append(s.Stale, e.IP)
		case e.Err != nil:
			return e.Err
		default:
			s.Leases = append(s.Leases, e.Lease)
		}
	}
	return nil
}

// removeStale removes the stale files. They were read under the lock that is still held, so
// no host-local is about to write to one of them. The directory is synced: a power loss must
// not restore a file that was reported as removed.
func (s *Store) removeStale(dir *os.Root) error {
	for len(s.Stale) > 0 {
		name := s.Stale[0].String()
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return files.AtPath(dir, name, err)
		}
		s.Removed, s.Stale = append(s.Removed, s.Stale[0]), s.Stale[1:]
	}
	if len(s.Removed) == 0 {
		return nil
	}
	directory, err := dir.Open(".")
	if err != nil {
		return files.AtPath(dir, ".", err)
	}
	return files.AtPath(dir, ".", errors.Join(directory.Sync(), directory.Close()))
}
