package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

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
