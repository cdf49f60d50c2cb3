package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// plugin is the correct plugin with the configured quirks.
type plugin struct{ conf conf }

var errNoPod = errors.New("CNI_ARGS names no pod (K8S_POD_NAME)")

// add allocates an address from each range set, all or none. Queued DELs are executed after it, as
// by a daemon that processes them later.
func (p plugin) add(args *skel.CmdArgs) error {
	h, ok := p.conf.holder(args)
	if !ok {
		return errNoPod
	}
	if p.conf.queue().down {
		return types.NewError(202, "the daemon cannot be reached", "")
	}
	s, err := p.conf.openStore()
	if err != nil {
		return err
	}
	defer s.close()
	ips, err := p.allocate(s, h, args.Args)
	if err == nil {
		err = p.conf.queue().replay(s)
	}
	if err != nil {
		return err
	}
	return p.print(ips)
}

func (p plugin) allocate(s *store, h holder, cniArgs string) ([]*current.IPConfig, error) {
	requested, err := p.conf.requested(cniArgs)
	if err != nil {
		return nil, err
	}
	held, err := s.addressesOf(h)
	if err != nil {
		return nil, err
	}
	if len(held) > 0 {
		switch p.conf.IPAM.RepeatedAdd {
		case "same":
			return p.ipConfigs(held), s.rewrite(held, h)
		case "another":
		default:
			return nil, fmt.Errorf("%s is held by %s: duplicate allocation is not allowed", held[0], h.key)
		}
	}
	if p.conf.IPAM.Requested == "extra" {
		taken, err := p.allocateFrom(s, h, nil)
		return append(taken, p.ipConfigs(requested)...), err
	}
	return p.allocateFrom(s, h, requested)
}

func (p plugin) allocateFrom(s *store, h holder, requested []netip.Addr) ([]*current.IPConfig, error) {
	var taken []*current.IPConfig
	alone := len(requested) > 0 && p.conf.IPAM.Requested == "alone"
	for _, set := range p.conf.IPAM.Ranges {
		if alone && !slices.ContainsFunc(requested, func(ip netip.Addr) bool { return set[0].contains(ip) }) {
			continue
		}
		ip, r, err := reserveFrom(s, h, set, requested)
		if err != nil {
			return nil, errors.Join(err, s.free(h))
		}
		requested = slices.DeleteFunc(requested, func(a netip.Addr) bool { return a == ip })
		taken = append(taken, p.ipConfig(ip, r))
	}
	if len(requested) > 0 {
		return nil, errors.Join(fmt.Errorf("requested addresses %s are in no range", requested), s.free(h))
	}
	return taken, nil
}

// reserveFrom reserves the requested address of a range set, or its lowest free address.
func reserveFrom(s *store, h holder, set []addressRange, requested []netip.Addr) (netip.Addr, addressRange, error) {
	for _, r := range set {
		for _, ip := range requested {
			if !r.contains(ip) {
				continue
			}
			ok, err := s.reserve(ip, h)
			if err == nil && !ok {
				err = fmt.Errorf("requested address %s is not available", ip)
			}
			return ip, r, err
		}
	}
	for _, r := range set {
		for ip := r.first(); r.Subnet.Contains(ip) && ip.Compare(r.last()) <= 0; ip = ip.Next() {
			if !r.contains(ip) {
				continue
			}
			if ok, err := s.reserve(ip, h); ok || err != nil {
				return ip, r, err
			}
		}
	}
	return netip.Addr{}, addressRange{}, fmt.Errorf("no addresses available in range set %v", set)
}

func (p plugin) ipConfigs(held []netip.Addr) []*current.IPConfig {
	var ips []*current.IPConfig
	for _, set := range p.conf.IPAM.Ranges {
		for _, r := range set {
			for _, ip := range held {
				if r.contains(ip) {
					ips = append(ips, p.ipConfig(ip, r))
				}
			}
		}
	}
	return ips
}

func (p plugin) ipConfig(ip netip.Addr, r addressRange) *current.IPConfig {
	if p.conf.IPAM.HostPrefix {
		return &current.IPConfig{Address: net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}}
	}
	return &current.IPConfig{
		Address: net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(r.Subnet.Bits(), ip.BitLen())},
		Gateway: r.gateway().AsSlice(),
	}
}

func (p plugin) print(ips []*current.IPConfig) error {
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, IPs: ips}
	if p.conf.IPAM.Uplink != nil {
		uplink := &current.Interface{}
		if err := json.Unmarshal(p.conf.IPAM.Uplink, uplink); err != nil {
			return err
		}
		result.Interfaces = []*current.Interface{uplink}
	}
	return types.PrintResult(result, p.conf.CNIVersion)
}

// del succeeds even if it frees nothing, unless a quirk prevents it.
func (p plugin) del(args *skel.CmdArgs) error {
	h, ok := p.conf.holder(args)
	switch q := p.conf.queue(); {
	case !ok && p.conf.IPAM.Del == "needs-pod":
		return errNoPod
	case !ok:
		return nil
	case p.conf.IPAM.Del == "queued" && q.down:
		if err := q.add(h); err != nil {
			return types.NewError(11, "the release could not be queued", err.Error())
		}
		return nil
	}
	s, err := p.conf.openStore()
	if err != nil {
		return err
	}
	defer s.close()
	if p.conf.IPAM.KeyedBy == "pod" {
		return s.freeUnless(func(text string) bool { return !strings.HasSuffix(text, "\n"+args.ContainerID) })
	}
	return s.free(h)
}

func (p plugin) check(args *skel.CmdArgs) error {
	switch p.conf.IPAM.Check {
	case "always-yes":
		return nil
	case "always-no":
		return errors.New("CHECK is not supported")
	}
	s, err := p.conf.openStore()
	if err != nil {
		return err
	}
	defer s.close()
	h, ok := p.conf.holder(args)
	held, err := s.addressesOf(h)
	if err == nil && (!ok || len(held) == 0) {
		err = fmt.Errorf("scripted: Failed to find address added by container %s", args.ContainerID)
	}
	return err
}

// status succeeds: the store is always available.
func (p plugin) status(*skel.CmdArgs) error { return nil }
