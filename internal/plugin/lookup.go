package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

// errNoLookup is the error for a plugin whose store cannot be read.
var errNoLookup = errors.New("the profile of the plugin has no lookup")

// Holds reports whether the plugin's store holds each address for the container ID and interface of
// an invocation. It reads one file per address, runs no plugin and takes no lock. False without an
// error is proof: an address has no file in the directory, or its file names another container ID or
// interface. Errors are *call.LookupError: unknown. The files are the plugin's store only if an ADD
// has proven that (call.Result.InStore, call.Invocation.StoreProven).
func (r *Runner) Holds(inv call.Invocation, addrs []netip.Addr) (bool, error) {
	s, err := r.usableStore(inv)
	if err != nil {
		return false, lookupErr(inv, err)
	}
	held, err := s.holds(inv.ContainerID, inv.IfName, addrs)
	if err != nil {
		return false, lookupErr(inv, err)
	}
	return held, nil
}

// Lookup returns everything that the plugin's store holds for the container ID and interface of an
// invocation, as the ADD that reserved it returned it. Without an error the result is proven; if it
// has no address, the store holds nothing for them.
//
// It waits for a plugin process of a previous run that still works on the container ID. As long as
// no ADD of this process has proven the store, the plugin must confirm by CHECK what is found, and
// finding nothing is an error.
//
// Errors are *call.LookupError: unknown. With an error the result has addresses only if the store
// has them and the configuration does not: each with its full length and without a gateway.
func (r *Runner) Lookup(ctx context.Context, inv call.Invocation) (call.Result, error) {
	result, err := r.lookupResult(ctx, inv)
	if err != nil {
		return result, lookupErr(inv, err)
	}
	return result, nil
}

func (r *Runner) lookupResult(ctx context.Context, inv call.Invocation) (call.Result, error) {
	s, err := r.usableStore(inv)
	if err != nil {
		return call.Result{}, err
	}
	held, err := r.scan(ctx, s, inv)
	if err != nil {
		return call.Result{}, err
	}
	proven := r.stores.get(s).proven
	switch {
	case len(held) == 0 && !proven:
		return call.Result{}, fmt.Errorf("nothing found in %s, and no ADD since the start of this process has proven that the plugin keeps its addresses there", s.dir)
	case len(held) == 0:
		return call.Result{}, nil
	}
	result, err := r.resultOf(inv, held)
	if err != nil || proven {
		return result, err
	}
	check := call.Call{ContainerID: inv.ContainerID, Invocation: inv, Requested: inv.Requested, PrevResult: result.Raw}
	if !inv.HasCheck() {
		return call.Result{}, fmt.Errorf("%s found in %s, and no ADD since the start of this process has proven that the plugin keeps its addresses there; it has no CHECK that could confirm them", held, s.dir)
	}
	if err := r.Check(ctx, check); err != nil {
		return call.Result{}, fmt.Errorf("%s found in %s and not confirmed: %w", held, s.dir, err)
	}
	return result, nil
}

// scan returns the addresses that the store holds for the container ID and interface of an
// invocation. That it holds none is certain only if every file could be read.
func (r *Runner) scan(ctx context.Context, s store, inv call.Invocation) ([]netip.Addr, error) {
	unlock, err := r.lockID(ctx, inv.ContainerID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir, err := hostlocal.OpenDir(s.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := hostlocal.List(dir)
	if err != nil {
		return nil, err
	}
	var held []netip.Addr
	var unknown error
	for _, e := range entries {
		is, known := e.Lease.Is(inv.ContainerID, inv.IfName)
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

// Held returns, for each container ID with a prefix and interface for which the plugin's store has an
// address, the given invocation with both. It runs no plugin and takes no lock.
func (r *Runner) Held(inv call.Invocation, prefix string) ([]call.Invocation, error) {
	s, err := r.storeOf(inv)
	if err != nil {
		return nil, err
	}
	dir, err := hostlocal.OpenDir(s.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := hostlocal.List(dir)
	if err != nil {
		return nil, err
	}
	var held []call.Invocation
	for _, e := range entries {
		found := inv
		found.ContainerID, found.IfName = e.Lease.ContainerID, e.Lease.Interface
		same := func(h call.Invocation) bool { return h.ContainerID == found.ContainerID && h.IfName == found.IfName }
		if e.Err == nil && strings.HasPrefix(found.ContainerID, prefix) && !slices.ContainsFunc(held, same) {
			held = append(held, found)
		}
	}
	return held, nil
}

// lockID locks a container ID, unless its prestarted processes have the lock.
func (r *Runner) lockID(ctx context.Context, containerID string) (unlock func(), err error) {
	if r.prestarted.get(containerID) != nil {
		return func() {}, nil
	}
	lock, err := r.locks.Lock(ctx, containerID)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

// resultOf returns the result of the ADD that reserved the addresses.
func (r *Runner) resultOf(inv call.Invocation, held []netip.Addr) (call.Result, error) {
	config, err := hostlocal.ParseConfig(inv.Config)
	if err != nil {
		return addressesOnly(held), fmt.Errorf("%s found, and the network configuration cannot be parsed: %w", held, err)
	}
	added, err := config.Result(held)
	if err != nil {
		return addressesOnly(held), err
	}
	result, err := readResult(added, inv.CNIVersion, r.linkMAC)
	if err != nil {
		return addressesOnly(held), fmt.Errorf("%s found: %w", held, err)
	}
	return result, nil
}

// addressesOnly returns a result of which only the addresses are known.
func addressesOnly(addrs []netip.Addr) call.Result {
	var result call.Result
	for _, ip := range addrs {
		result.Addresses = append(result.Addresses, call.Address{Prefix: netip.PrefixFrom(ip, ip.BitLen())})
	}
	return result
}

func lookupErr(inv call.Invocation, err error) error {
	return &call.LookupError{Plugin: inv.Plugin, Network: inv.Network, ContainerID: inv.ContainerID, Err: err}
}

// store is where one plugin keeps the addresses of one network.
type store struct {
	network string
	// dir is the directory of the network's lease files.
	dir string
	// binary is the plugin's executable.
	binary string
}

// storeOf returns the store of an invocation, or why there is none that can be read.
func (r *Runner) storeOf(inv call.Invocation) (store, error) {
	if !inv.Profile.LikeHostLocal() {
		return store{}, errNoLookup
	}
	var network struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(inv.Config, &network); err != nil {
		return store{}, fmt.Errorf("network configuration: %w", err)
	}
	dir, key := inv.Profile.StateDir(network.IPAM)
	if !filepath.IsAbs(dir) {
		return store{}, fmt.Errorf("ipam.%s is %q; expected an absolute path", key, dir)
	}
	if !filepath.IsLocal(inv.Network) {
		return store{}, fmt.Errorf("network name %q; expected one that is the name of a directory", inv.Network)
	}
	if current, err := r.withExecutable(inv); err == nil {
		inv = current // otherwise the store can be read anyway
	}
	return store{network: inv.Network, dir: filepath.Join(dir, inv.Network), binary: inv.Binary}, nil
}

// usableStore returns the store of an invocation unless lookup is off for it.
func (r *Runner) usableStore(inv call.Invocation) (store, error) {
	s, err := r.storeOf(inv)
	if err != nil {
		return store{}, err
	}
	if off := r.stores.get(s).off; off != "" {
		return store{}, errors.New(off)
	}
	return s, nil
}

// holds reads the file of each address.
func (s store) holds(containerID, ifname string, addrs []netip.Addr) (bool, error) {
	if len(addrs) == 0 {
		return false, errors.New("no address to look up")
	}
	dir, err := hostlocal.OpenDir(s.dir)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	held := true
	for _, ip := range addrs {
		lease, err := hostlocal.Read(dir, ip)
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

// partialFileErr returns the error for a file that may not have been written to its end.
func (s store) partialFileErr(ip netip.Addr) error {
	return fmt.Errorf("%s names no interface, or only the beginning of one", filepath.Join(s.dir, ip.String()))
}
