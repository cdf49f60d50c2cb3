package hostlocal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// Config is the part of a network configuration that determines host-local's result
// (backend/allocator/config.go).
type Config struct {
	// sets are the range sets. An ADD returns one address from each, in this order.
	sets   [][]addressRange
	routes []*types.Route
	// excluded are left out of Size and Used. None contains another.
	excluded []netip.Prefix
}

// addressRange is one range of addresses (backend/allocator/range.go).
type addressRange struct {
	Subnet  netip.Prefix `json:"subnet"`
	Start   netip.Addr   `json:"rangeStart"`
	End     netip.Addr   `json:"rangeEnd"`
	Gateway netip.Addr   `json:"gateway"`
}

// ParseConfig parses a complete network configuration. It refuses ranges that host-local could not
// allocate from. The error names the range.
func ParseConfig(config []byte) (Config, error) {
	var network struct {
		IPAM struct {
			addressRange                  // a single range, the old form
			Ranges       [][]addressRange `json:"ranges"`
			Routes       []*types.Route   `json:"routes"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(config, &network); err != nil {
		return Config{}, err
	}
	c := Config{sets: network.IPAM.Ranges, routes: network.IPAM.Routes}
	if network.IPAM.Subnet.IsValid() {
		c.sets = slices.Insert(c.sets, 0, []addressRange{network.IPAM.addressRange})
	}
	for i, set := range c.sets {
		for j := range set {
			if err := set[j].setDefaults(); err != nil {
				return Config{}, fmt.Errorf("ipam.ranges[%d][%d]: %w", i, j, err)
			}
		}
	}
	if len(c.sets) == 0 {
		return Config{}, errors.New("ipam has neither ranges nor a subnet")
	}
	return c, nil
}

// setDefaults checks the range and sets what the configuration leaves out, as host-local does
// (Canonicalize).
func (r *addressRange) setDefaults() error {
	if !r.Subnet.IsValid() || r.Subnet.Addr().Is4In6() || r.Subnet != r.Subnet.Masked() || r.Subnet.Bits() > r.Subnet.Addr().BitLen()-2 {
		return fmt.Errorf("subnet is %q; expected the address of a network of at least four addresses, with its prefix length", r.Subnet)
	}
	first := r.Subnet.Addr().Next()
	for _, field := range []struct {
		addr         *netip.Addr
		defaultValue netip.Addr
	}{{&r.Start, first}, {&r.End, lastOf(r.Subnet)}, {&r.Gateway, first}} {
		if !field.addr.IsValid() {
			*field.addr = field.defaultValue
		}
		if field.addr.Zone() != "" {
			return fmt.Errorf("%s has a zone; expected an address without one", field.addr)
		}
		*field.addr = field.addr.Unmap()
	}
	return nil
}

// lastOf returns the last address that host-local allocates from a subnet: not the broadcast address
// of an IPv4 subnet.
func lastOf(subnet netip.Prefix) netip.Addr {
	last := lastIn(subnet)
	if last.Is4() {
		return last.Prev()
	}
	return last
}

// lastIn returns the last address of a prefix.
func lastIn(p netip.Prefix) netip.Addr {
	last := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 1 << (7 - bit%8)
	}
	addr, _ := netip.AddrFromSlice(last)
	return addr
}

func (r addressRange) contains(ip netip.Addr) bool {
	return r.Subnet.Contains(ip) && r.Start.Compare(ip) <= 0 && ip.Compare(r.End) <= 0
}

// find returns the range of an address and the index of its range set.
func (c Config) find(ip netip.Addr) (set int, r addressRange, ok bool) {
	for set, ranges := range c.sets {
		if i := slices.IndexFunc(ranges, func(r addressRange) bool { return r.contains(ip) }); i >= 0 {
			return set, ranges[i], true
		}
	}
	return 0, addressRange{}, false
}

func (c Config) Contains(ip netip.Addr) bool {
	_, _, ok := c.find(ip)
	return ok
}

// Without returns the configuration for Size and Used without the excluded addresses.
func (c Config) Without(excluded []netip.Prefix) Config {
	c.excluded = nil
	for _, p := range excluded {
		p = p.Masked()
		inside := func(in, other netip.Prefix) bool { return other.Bits() <= in.Bits() && other.Contains(in.Addr()) }
		if !slices.ContainsFunc(c.excluded, func(other netip.Prefix) bool { return inside(p, other) }) {
			c.excluded = append(slices.DeleteFunc(c.excluded, func(other netip.Prefix) bool { return inside(other, p) }), p)
		}
	}
	return c
}

// Size returns the number of addresses of a family that host-local allocates: those of its ranges but
// their gateways. is is netip.Addr.Is4 or Is6.
func (c Config) Size(is func(netip.Addr) bool) float64 {
	total := 0.0
	for _, r := range slices.Concat(c.sets...) {
		if is(r.Start) {
			total += c.sizeOf(r)
		}
	}
	return total
}

// sizeOf returns the number of addresses of a range but its gateway. That of a large one is rounded.
func (c Config) sizeOf(r addressRange) float64 {
	size := between(r.Start, r.End)
	for _, p := range c.excluded {
		first, last := p.Addr(), lastIn(p)
		if first.Less(r.Start) {
			first = r.Start
		}
		if r.End.Less(last) {
			last = r.End
		}
		size -= between(first, last)
	}
	if r.contains(r.Gateway) && !c.excludes(r.Gateway) {
		size--
	}
	return size
}

// between returns the number of addresses from first to last; 0 if last is before first.
func between(first, last netip.Addr) float64 {
	if last.Less(first) {
		return 0
	}
	size := new(big.Int).SetBytes(last.AsSlice())
	n, _ := size.Sub(size, new(big.Int).SetBytes(first.AsSlice())).Float64()
	return n + 1
}

func (c Config) excludes(ip netip.Addr) bool {
	return slices.ContainsFunc(c.excluded, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// use counts addresses that have a file and are among those of Size.
func (c Config) use(ips iter.Seq[netip.Addr]) (v4, v6 float64) {
	for ip := range ips {
		_, r, inRange := c.find(ip)
		switch {
		case !inRange || ip == r.Gateway || c.excludes(ip):
		case ip.Is4():
			v4++
		default:
			v6++
		}
	}
	return v4, v6
}

// Result returns the result of the ADD that reserved these addresses, without dns, which host-local
// reads from another file (ipam.resolvConf). The error names an address that is in none of the
// ranges.
func (c Config) Result(addrs []netip.Addr) (*current.Result, error) {
	type ipOfSet struct {
		set int
		ip  netip.Addr
		*current.IPConfig
	}
	var all []ipOfSet
	for _, ip := range addrs {
		set, r, ok := c.find(ip)
		if !ok {
			return nil, fmt.Errorf("%s is in none of the ranges of ipam", ip)
		}
		address := net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(r.Subnet.Bits(), ip.BitLen())}
		all = append(all, ipOfSet{set, ip, &current.IPConfig{Address: address, Gateway: r.Gateway.AsSlice()}})
	}
	slices.SortFunc(all, func(a, b ipOfSet) int { return cmp.Or(cmp.Compare(a.set, b.set), a.ip.Compare(b.ip)) })
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: c.routes}
	for _, p := range all {
		result.IPs = append(result.IPs, p.IPConfig)
	}
	return result, nil
}
