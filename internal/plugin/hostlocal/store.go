package hostlocal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Store is where one plugin keeps the addresses of one network.
type Store struct {
	Network string
	// Dir is the directory of the network's lease files.
	Dir string
	// Binary is the plugin's executable; empty if this process changes the store (Stores.Call).
	Binary string
}

// Holds reports whether the store holds each address for a container ID and interface. It reads one file
// per address and takes no lock. False without an error is certain: an address has no file, or its
// file names another container ID or interface.
func (s Store) Holds(containerID, ifname string, addrs []netip.Addr) (bool, error) {
	if len(addrs) == 0 {
		return false, errors.New("no address to look up")
	}
	dir, err := OpenDir(s.Dir)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	held := true
	for _, ip := range addrs {
		lease, err := Read(dir, ip)
		if errors.Is(err, fs.ErrNotExist) {
			held = false
			continue
		}
		if err != nil {
			return false, err
		}
		is, known := lease.Is(containerID, ifname)
		if !known {
			return false, s.partialFileErr(ip)
		}
		held = held && is
	}
	return held, nil
}

// Find returns the addresses that the store holds for a container ID and interface. That it holds none
// is certain only if every file could be read; otherwise it is an error.
func (s Store) Find(containerID, ifname string) ([]netip.Addr, error) {
	entries, err := s.List()
	if err != nil {
		return nil, err
	}
	return s.heldIn(entries, containerID, ifname)
}

// heldIn returns what Find does, of all files that may have a lease of the container ID.
func (s Store) heldIn(entries []Entry, containerID, ifname string) ([]netip.Addr, error) {
	var held []netip.Addr
	var unknown error
	for _, e := range entries {
		is, known := e.Lease.Is(containerID, ifname)
		switch {
		case e.Err != nil:
			unknown = e.Err
		case is:
			held = append(held, e.IP)
		case !known:
			unknown = s.partialFileErr(e.IP)
		}
	}
	if len(held) == 0 && unknown != nil {
		return nil, unknown
	}
	return held, nil
}

// names returns the addresses that have a file. It reads no file.
func (s Store) names() (ips []netip.Addr, err error) {
	entries, err := os.ReadDir(s.Dir + "/") // with the slash a FIFO is an error
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if ip, ok := Address(e.Name()); ok {
			ips = append(ips, ip)
		}
	}
	return ips, nil
}

func (s Store) List() ([]Entry, error) {
	dir, err := OpenDir(s.Dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return List(dir)
}

// partialFileErr returns the error for a file that may not have been written to its end.
func (s Store) partialFileErr(ip netip.Addr) error {
	return fmt.Errorf("%s names no interface, or only the beginning of one", filepath.Join(s.Dir, ip.String()))
}

// Stores remembers in which stores the results of ADDs were found, and what is in them. It is safe for
// concurrent use.
type Stores struct {
	mu    sync.Mutex
	known map[Store]StoreStatus
	// networks has what is kept of each directory.
	networks map[string]*network
	// Unwatched is called when a directory cannot be watched, so that each call reads all files, and why; not for one
	// that is missing or on another file system than those which can be. Nil for nothing.
	Unwatched func(dir string, err error)
}

// network is what is kept of a network's directory.
type network struct {
	// joining guards next, the changes that further calls join while changing is held by others that are made.
	joining  sync.Mutex
	next     *batch
	changing sync.Mutex
	// synced: no change may be in memory alone, also not one of a killed process.
	synced bool
	// mu is held during each use of the index, which is nil before its first use.
	mu sync.Mutex
	*index
	unwatched func(dir string, err error)
	// reported is the text of its last call.
	reported string
}

func (all *Stores) network(dir string) *network {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.networks == nil {
		all.networks = map[string]*network{}
	}
	n := all.networks[dir]
	if n == nil {
		n = &network{unwatched: all.Unwatched}
		all.networks[dir] = n
	}
	return n
}

// current makes the index that of the directory now; mu is held. It reads the whole store only the first time, and
// when changes may have been missed since. A store that cannot be watched is an error.
func (n *network) current(dir string) (err error) {
	if n.index != nil && n.update(dir) {
		return nil
	}
	if n.index != nil {
		n.close()
	}
	if n.index, err = newIndex(dir); err == nil || errors.Is(err, errUnwatched) || errors.Is(err, fs.ErrNotExist) {
		n.reported = ""
	} else if text := err.Error(); text != n.reported && n.unwatched != nil {
		n.reported = text
		n.unwatched(dir, err)
	}
	return err
}

// Find is Store.Find by the index. A store that cannot be watched is looked up by Store.Find.
func (all *Stores) Find(s Store, containerID, ifname string) ([]netip.Addr, error) {
	n := all.network(s.Dir)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current(s.Dir) != nil {
		return s.Find(containerID, ifname)
	}
	return s.heldIn(n.entries(containerID), containerID, ifname)
}

// Used returns how many of the addresses of Config.Size are allocated, to any client, by the index. Of a store that
// cannot be watched it reads the names.
func (all *Stores) Used(s Store, c Config) (v4, v6 float64, err error) {
	n := all.network(s.Dir)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current(s.Dir) == nil {
		v4, v6 = c.use(maps.Keys(n.leases))
		return v4, v6, nil
	}
	ips, err := s.names()
	v4, v6 = c.use(slices.Values(ips))
	return v4, v6, err
}

// StoreStatus is what the ADDs of this process have shown of a store.
type StoreStatus struct {
	// Confirmed reports that the result of the last ADD was found there.
	Confirmed bool
	// Disabled is why lookup is off: the result of an ADD was not found. It stays off until the process
	// ends, or network, directory or executable change.
	Disabled string
}

func (all *Stores) Status(s Store) StoreStatus {
	if s.Binary == "" {
		return StoreStatus{Confirmed: true}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.known[s]
}

// Confirm looks up the result of an ADD that has just succeeded. If the store does not have it, the
// plugin keeps its addresses in another place or form than its profile says: lookup is disabled for
// the store. The reason is returned when that happens.
func (all *Stores) Confirm(s Store, containerID, ifname string, addrs []netip.Addr) (confirmed bool, disabled string) {
	status := StoreStatus{Confirmed: true}
	for _, ip := range addrs {
		if reason := s.missingReason(containerID, ifname, ip); reason != "" {
			status = StoreStatus{Disabled: fmt.Sprintf("lookup is off for network %s: ADD returned %s, but %s; is this plugin a wrapper, or does its dataDir lie elsewhere?", s.Network, ip, reason)}
			break
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.known[s].Disabled != "" {
		return status.Confirmed, ""
	}
	if all.known == nil {
		all.known = map[Store]StoreStatus{}
	}
	all.known[s] = status
	return status.Confirmed, status.Disabled
}

// missingReason returns why an address was not found; empty if it was.
func (s Store) missingReason(containerID, ifname string, ip netip.Addr) string {
	held, err := s.Holds(containerID, ifname, []netip.Addr{ip})
	switch {
	case err != nil:
		return err.Error()
	case !held:
		return fmt.Sprintf("%s/%s does not name container ID %s, interface %s", s.Dir, ip, containerID, ifname)
	}
	return ""
}
