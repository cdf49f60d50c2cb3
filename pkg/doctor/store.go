package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
)

// Store is what was seen of the files of one pool's plugin.
type Store struct {
	// Pool and Network are names; Plugin is the plugin's type.
	Pool, Network, Plugin string
	// Dir is the network's folder; empty if it was not looked for.
	Dir    string
	Leases []hostlocal.Lease
	// Empty are the addresses whose files name no container ID, and Removed those
	// whose files were such and are removed now.
	Empty, Removed []netip.Addr
	// Odd are the addresses in whose place is what host-local never makes.
	Odd []netip.Addr
	// Err is why the store could not be found, read or repaired.
	Err error
}

// LookAt reads the stores of pools, in their order, under the plugin's own lock, for
// which it waits until ctx ends. Only host-local's files are known; of another
// plugin nothing is read. With repair, files without a container ID are removed.
// What goes wrong is in each Store.
func LookAt(ctx context.Context, pools []*models.PoolStatus, repair bool) []Store {
	stores := make([]Store, len(pools))
	for i, p := range pools {
		stores[i] = Store{Pool: p.Pool, Network: p.Network, Plugin: p.Plugin}
		if p.Network != "" && p.Plugin == hostLocal {
			stores[i].look(ctx, p, repair)
		}
	}
	return stores
}

func (s *Store) look(ctx context.Context, p *models.PoolStatus, repair bool) {
	if s.Dir, s.Err = locate(p); s.Err != nil {
		return
	}
	dir, err := os.OpenRoot(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return // host-local makes it with the first address
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
		s.Err = s.removeEmpty(dir)
	}
}

// read reads the file of each address.
func (s *Store) read(dir *os.Root) error {
	entries, err := hostlocal.List(dir)
	if err != nil {
		return named(dir, err)
	}
	for _, e := range entries {
		switch {
		case errors.Is(e.Err, hostlocal.ErrUnexpected):
			s.Odd = append(s.Odd, e.IP)
		case errors.Is(e.Err, hostlocal.ErrEmpty):
			s.Empty = append(s.Empty, e.IP)
		case e.Err != nil:
			return named(dir, e.Err)
		default:
			s.Leases = append(s.Leases, e.Lease)
		}
	}
	return nil
}

// removeEmpty removes the empty files that were read under the lock that is still
// held, so that none of them is of a host-local that is about to write its ID. The
// folder is synced: a power loss must not bring a file back that was said to be gone.
func (s *Store) removeEmpty(dir *os.Root) error {
	for len(s.Empty) > 0 {
		if err := dir.Remove(s.Empty[0].String()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return named(dir, err)
		}
		s.Removed, s.Empty = append(s.Removed, s.Empty[0]), s.Empty[1:]
	}
	if len(s.Removed) == 0 {
		return nil
	}
	folder, err := dir.Open(".")
	if err != nil {
		return named(dir, err)
	}
	return named(dir, errors.Join(folder.Sync(), folder.Close()))
}

// file is where host-local keeps an address.
func (s Store) file(ip netip.Addr) string { return filepath.Join(s.Dir, ip.String()) }

// named makes an error of a file below a folder name the whole path.
func named(dir *os.Root, err error) error {
	if err == nil {
		return nil
	}
	if at := (*fs.PathError)(nil); errors.As(err, &at) && filepath.IsLocal(at.Path) {
		return fmt.Errorf("%s: %w", filepath.Join(dir.Name(), at.Path), at.Err)
	}
	return fmt.Errorf("%s: %w", dir.Name(), err)
}
