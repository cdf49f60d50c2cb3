package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// errNoLookup is that of a plugin whose store cannot be read.
var errNoLookup = errors.New("the profile of the plugin has no lookup")

// Holds reports whether the plugin's store holds each address for the container ID and
// interface of c. It reads one file per address, runs no plugin and takes no lock.
// False without an error is proof: an address has no file in the folder, or its file
// names another container ID or interface. Errors are *call.LookupError: unknown. What
// it reads is the plugin's store only if an ADD has proven that (call.Result.InStore,
// call.Context.StoreProven).
func (r *Runner) Holds(c call.Invocation, addrs []netip.Addr) (bool, error) {
	s, err := r.usableStore(c)
	if err != nil {
		return false, lookupError(c, err)
	}
	held, err := s.holds(c.ContainerID, c.IfName, addrs)
	if err != nil {
		return false, lookupError(c, err)
	}
	return held, nil
}

// Lookup returns everything that the plugin's store holds for the container ID and
// interface of c, as the ADD that reserved it returned it. Without an error it is the
// truth; without an address the store holds nothing for them.
//
// It waits for a plugin process of a previous run that still works on the container
// ID. Where no ADD of this process has proven the store yet, the plugin must confirm by
// CHECK what is found, and that nothing is found is an error.
//
// Errors are *call.LookupError: unknown. With an error the result has addresses only if
// the store has them and the configuration does not: each with its full length and
// without a gateway.
func (r *Runner) Lookup(ctx context.Context, c call.Invocation) (call.Result, error) {
	result, err := r.lookUp(ctx, c)
	if err != nil {
		return result, lookupError(c, err)
	}
	return result, nil
}

func (r *Runner) lookUp(ctx context.Context, c call.Invocation) (call.Result, error) {
	s, err := r.usableStore(c)
	if err != nil {
		return call.Result{}, err
	}
	held, err := r.scan(ctx, s, c)
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
	result, err := r.resultOf(c, held)
	if err != nil || proven {
		return result, err
	}
	check := call.Call{ContainerID: c.ContainerID, Invocation: c, Requested: c.Requested, PrevResult: result.Raw}
	if !c.HasCheck() {
		return call.Result{}, fmt.Errorf("%s found in %s, and no ADD since the start of this process has proven that the plugin keeps its addresses there; it has no CHECK that could confirm them", held, s.dir)
	}
	if err := r.Check(ctx, check); err != nil {
		return call.Result{}, fmt.Errorf("%s found in %s and not confirmed: %w", held, s.dir, err)
	}
	return result, nil
}

// scan returns the addresses that the store holds for a container ID and interface.
// That there is none is certain only if every file could be read.
func (r *Runner) scan(ctx context.Context, s store, c call.Invocation) ([]netip.Addr, error) {
	unlock, err := r.lockID(ctx, c.ContainerID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := hostlocal.List(dir)
	if err != nil {
		return nil, s.named(err)
	}
	var held []netip.Addr
	var unknown error
	for _, e := range entries {
		is, known := e.Lease.Is(c.ContainerID, c.IfName)
		switch {
		case e.Err != nil:
			unknown = s.named(e.Err)
		case is:
			held = append(held, e.IP)
		case !known:
			unknown = s.partial(e.IP)
		}
	}
	if len(held) == 0 && unknown != nil {
		return nil, unknown
	}
	return held, nil
}

// lockID takes the lock of a container ID, unless the processes that stand by for it
// have it.
func (r *Runner) lockID(ctx context.Context, containerID string) (unlock func(), err error) {
	if r.expected.of(containerID) != nil {
		return func() {}, nil
	}
	lock, err := r.locks.take(ctx, containerID)
	if err != nil {
		return nil, err
	}
	return lock.release, nil
}

// resultOf is what the ADD that reserved the addresses returned.
func (r *Runner) resultOf(c call.Invocation, held []netip.Addr) (call.Result, error) {
	config, err := hostlocal.ParseConfig(c.Config)
	if err != nil {
		return bare(held), fmt.Errorf("%s found, and the network configuration cannot be read: %w", held, err)
	}
	added, err := config.Result(held)
	if err != nil {
		return bare(held), err
	}
	result, err := readResult(added, c.CNIVersion, r.linkMAC)
	if err != nil {
		return bare(held), fmt.Errorf("%s found: %w", held, err)
	}
	return result, nil
}

// bare is a result of which nothing but the addresses is known.
func bare(addrs []netip.Addr) call.Result {
	var result call.Result
	for _, ip := range addrs {
		result.Addresses = append(result.Addresses, call.Address{Prefix: netip.PrefixFrom(ip, ip.BitLen())})
	}
	return result
}

func lookupError(c call.Invocation, err error) error {
	return &call.LookupError{Plugin: c.Plugin, Network: c.Network, ContainerID: c.ContainerID, Err: err}
}

// lookup returns the store of a context's plugin, if it can be looked up.
func (r *Runner) lookup(c call.Invocation) (store, error) {
	if c.Profile.Lookup != profile.LookupHostLocal {
		return store{}, errNoLookup
	}
	var network struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(c.Config, &network); err != nil {
		return store{}, fmt.Errorf("network configuration: %w", err)
	}
	dir, key := c.Profile.StateDir(network.IPAM)
	if !filepath.IsAbs(dir) {
		return store{}, fmt.Errorf("ipam.%s is %q; expected an absolute path", key, dir)
	}
	if !filepath.IsLocal(c.Network) {
		return store{}, fmt.Errorf("network name %q; expected one that names a folder", c.Network)
	}
	if now, err := r.located(c); err == nil {
		c = now // the store can be read without a plugin, too
	}
	return store{network: c.Network, dir: filepath.Join(dir, c.Network), binary: c.Binary}, nil
}

// usableStore is the store of a context's plugin unless its lookup is off.
func (r *Runner) usableStore(c call.Invocation) (store, error) {
	s, err := r.lookup(c)
	if err != nil {
		return store{}, err
	}
	if off := r.stores.get(s).off; off != "" {
		return store{}, errors.New(off)
	}
	return s, nil
}

// store is where one plugin keeps the addresses of one network.
type store struct {
	network string
	// dir is the folder of the network's lease files.
	dir string
	// binary is the plugin's executable.
	binary string
}

// holds reads the file of each address.
func (s store) holds(containerID, ifname string, addrs []netip.Addr) (bool, error) {
	if len(addrs) == 0 {
		return false, errors.New("no address to look up")
	}
	dir, err := os.OpenRoot(s.dir)
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
			return false, s.named(err)
		}
		is, known := lease.Is(containerID, ifname)
		if !known {
			return false, s.partial(ip)
		}
		held = held && is
	}
	return held, nil
}

// partial is the error of a file that may not have been written to its end.
func (s store) partial(ip netip.Addr) error {
	return fmt.Errorf("%s names no interface, or only the beginning of one", filepath.Join(s.dir, ip.String()))
}

// named makes an error of a file in the store name its whole path.
func (s store) named(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return fmt.Errorf("%s: %w", filepath.Join(s.dir, at.Path), at.Err)
	}
	return fmt.Errorf("%s: %w", s.dir, err)
}
