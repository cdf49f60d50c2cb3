package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

// errNoLookup is the error for a plugin whose store cannot be read.
var errNoLookup = errors.New("the profile of the plugin has no lookup")

// Holds reports whether the plugin's store holds each address for the container ID and interface of
// an invocation. It runs no plugin and takes no lock. False without an error is certain; an error means
// unknown. The files are the plugin's store only if a lookup has found the result of an ADD there
// (call.Result.InStore, call.Invocation.StoreProven).
func (r *Runner) Holds(inv call.Invocation, addrs []netip.Addr) (bool, error) {
	s, err := r.usableStore(inv)
	if err != nil {
		return false, wrapLookupErr(inv, err)
	}
	held, err := s.Holds(inv.ContainerID, inv.IfName, addrs)
	return held, wrapLookupErr(inv, err)
}

// Lookup returns everything that the plugin's store holds for the container ID and interface of an
// invocation, as the ADD that reserved it returned it. Without an error the result is certain; if it
// has no address, the store holds nothing for them.
//
// It waits for a plugin process of a previous run that still works on the container ID. As long as
// no ADD of this process, nor the one of the invocation, has confirmed the store, the plugin must confirm by
// CHECK what is found, and finding nothing is an error.
//
// An error means unknown. With an error the result has addresses only if the store has them and the
// configuration does not: each with its full length and without a gateway.
func (r *Runner) Lookup(ctx context.Context, inv call.Invocation) (result call.Result, err error) {
	defer func() { err = wrapLookupErr(inv, err) }()
	s, err := r.usableStore(inv)
	if err != nil {
		return call.Result{}, err
	}
	// No process of an earlier call may change the store meanwhile.
	lock, err := r.locks.Lock(ctx, inv.ContainerID)
	if err != nil {
		return call.Result{}, err
	}
	held, err := r.stores.Find(s, inv.ContainerID, inv.IfName)
	lock.Unlock()
	if err != nil {
		return call.Result{}, err
	}
	confirmed := inv.StoreProven || r.stores.Status(s).Confirmed
	switch {
	case len(held) == 0 && !confirmed:
		return call.Result{}, fmt.Errorf("nothing found in %s, and no ADD since the start of this process has proven that the plugin keeps its addresses there", s.Dir)
	case len(held) == 0:
		return call.Result{}, nil
	}
	result, err = r.resultOf(inv, held)
	if err != nil || confirmed {
		return result, err
	}
	if !inv.HasCheck() {
		return call.Result{}, fmt.Errorf("%s found in %s, and no ADD since the start of this process has proven that the plugin keeps its addresses there; it has no CHECK that could confirm them", held, s.Dir)
	}
	inv.PrevResult = result.Raw
	if err := r.Check(ctx, call.Call{Invocation: inv}); err != nil {
		return call.Result{}, fmt.Errorf("%s found in %s and not confirmed: %w", held, s.Dir, err)
	}
	return result, nil
}

// Held returns, for each container ID with a prefix and interface for which the plugin's store has an
// address, the given invocation with both. It runs no plugin and takes no lock.
func (r *Runner) Held(inv call.Invocation, prefix string) ([]call.Invocation, error) {
	s, err := r.storeOf(inv)
	if err != nil {
		return nil, err
	}
	entries, err := s.List()
	if err != nil {
		return nil, err
	}
	var held []call.Invocation
	for _, e := range entries {
		inv.ContainerID, inv.IfName = e.Lease.ContainerID, e.Lease.Interface
		if e.Err == nil && strings.HasPrefix(inv.ContainerID, prefix) && !slices.ContainsFunc(held, inv.SameAttachment) {
			held = append(held, inv)
		}
	}
	return held, nil
}

// RangeUse returns the use of the ranges of an invocation's configuration; nothing of a plugin that is not
// configured as host-local, or whose store cannot be read. It runs no plugin and takes no lock of one.
// --exclude-addresses count as neither.
func (r *Runner) RangeUse(inv call.Invocation) (v4, v6 call.RangeUse) {
	s, err := r.storeOf(inv)
	if err != nil {
		return v4, v6
	}
	config, err := hostlocal.ParseConfig(inv.Config)
	if err != nil {
		return v4, v6
	}
	config = config.Without(r.opts.Exclude)
	used4, used6, err := r.stores.Used(s, config)
	if err != nil {
		return v4, v6
	}
	return call.RangeUse{Total: config.Size(netip.Addr.Is4), Used: used4}, call.RangeUse{Total: config.Size(netip.Addr.Is6), Used: used6}
}

// resultOf returns the result of the ADD that reserved the addresses.
func (r *Runner) resultOf(inv call.Invocation, held []netip.Addr) (call.Result, error) {
	var addressesOnly call.Result
	for _, ip := range held {
		addressesOnly.Addresses = append(addressesOnly.Addresses, call.Address{Prefix: netip.PrefixFrom(ip, ip.BitLen())})
	}
	config, err := hostlocal.ParseConfig(inv.Config)
	if err != nil {
		return addressesOnly, fmt.Errorf("%s found, and the network configuration cannot be parsed: %w", held, err)
	}
	added, err := config.Result(held)
	if err != nil {
		return addressesOnly, err
	}
	result, err := readResult(added, inv.CNIVersion, r.linkMAC)
	if err != nil {
		return addressesOnly, fmt.Errorf("%s found: %w", held, err)
	}
	return result, nil
}

func wrapLookupErr(inv call.Invocation, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lookup of container ID %s in network %q of plugin %s: %w", inv.ContainerID, inv.Network, inv.Plugin, err)
}

// storeOf returns the store of an invocation, or why there is none that can be read.
func (r *Runner) storeOf(inv call.Invocation) (hostlocal.Store, error) {
	if !inv.Profile.LikeHostLocal() {
		return hostlocal.Store{}, errNoLookup
	}
	var network struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(inv.Config, &network); err != nil {
		return hostlocal.Store{}, fmt.Errorf("network configuration: %w", err)
	}
	dir, key := inv.Profile.StateDir(network.IPAM)
	if !filepath.IsAbs(dir) {
		return hostlocal.Store{}, fmt.Errorf("ipam.%s is %q; expected an absolute path", key, dir)
	}
	if !filepath.IsLocal(inv.Network) {
		return hostlocal.Store{}, fmt.Errorf("network name %q; expected one that is the name of a directory", inv.Network)
	}
	if current, err := r.withExecutable(inv); err == nil {
		inv = current // otherwise the store can be read anyway
	}
	return hostlocal.Store{Network: inv.Network, Dir: filepath.Join(dir, inv.Network), Binary: inv.Binary}, nil
}

// usableStore returns the store of an invocation unless lookup is disabled for it.
func (r *Runner) usableStore(inv call.Invocation) (hostlocal.Store, error) {
	s, err := r.storeOf(inv)
	if err != nil {
		return s, err
	}
	if disabled := r.stores.Status(s).Disabled; disabled != "" {
		return s, errors.New(disabled)
	}
	return s, nil
}

// inStore reports whether the plugin's store has the result of an ADD that has just succeeded. If not,
// lookup is disabled for the store.
func (r *Runner) inStore(ctx context.Context, inv call.Invocation, addresses []call.Address) bool {
	s, err := r.usableStore(inv)
	if err != nil {
		return false
	}
	confirmed, disabled := r.stores.Confirm(s, inv.ContainerID, inv.IfName, call.Addrs(addresses))
	if disabled != "" {
		logging.ForRequest(ctx, r.opts.Log).WithField("plugin", inv.Plugin).WithField("binary", s.Binary).Warn(disabled)
	}
	return confirmed
}

// Verification is how the held attachments of a network are verified.
type Verification struct {
	// By is VerifyByLookup, or a profile.Verify.
	By string
	// Reason is why lookup is off although the profile has one, or what lookup waits for; empty for
	// neither.
	Reason string
}

// VerifyByLookup is the Verification.By of a network whose store is looked up.
const VerifyByLookup = "lookup"

// Verification returns how an attachment of the invocation's network is verified now.
func (r *Runner) Verification(inv call.Invocation) Verification {
	withoutLookup := string(inv.VerifyBy())
	s, err := r.usableStore(inv)
	switch {
	case errors.Is(err, errNoLookup):
		return Verification{By: withoutLookup}
	case err != nil:
		return Verification{By: withoutLookup, Reason: err.Error()}
	case !r.stores.Status(s).Confirmed:
		return Verification{By: VerifyByLookup, Reason: fmt.Sprintf("no ADD since the start of this process has proven yet that the plugin keeps its addresses in %s; an attachment is looked up if its own ADD has", s.Dir)}
	default:
		return Verification{By: VerifyByLookup}
	}
}

// Range compares addresses with the ranges of a network's configuration. The ranges are known only of
// plugins that are configured as host-local: those whose profile has its lookup. While a file of profiles is
// unusable, it is unknown whether another plugin is.
func (r *Runner) Range(n call.Network, addrs []netip.Addr) call.Range {
	last, _ := r.ranges.Load(n.Name)
	parsed, ok := last.(parsedRanges)
	if !ok || !bytes.Equal(parsed.of, n.PluginConfig) {
		profiles, profilesErr := r.opts.Profiles()
		parsed = parsedRanges{of: n.PluginConfig}
		if profiles.For(n.IPAMType).LikeHostLocal() {
			config, err := hostlocal.ParseConfig(n.PluginConfig)
			parsed.config, parsed.known = config, err == nil
		}
		switch {
		case profilesErr == nil:
			r.ranges.Store(n.Name, parsed)
		case !parsed.known:
			return call.RangeUnconfigured
		}
	}
	if parsed.known && slices.ContainsFunc(addrs, func(ip netip.Addr) bool { return !parsed.config.Contains(ip) }) {
		return call.RangeOutside
	}
	return ""
}

// parsedRanges are the ranges of the plugin object of.
type parsedRanges struct {
	of     []byte
	config hostlocal.Config
	known  bool
}
