package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// plugin is the correct plugin with the configured quirks.
type plugin struct{ conf conf }

func holderOf(args *skel.CmdArgs) string { return args.ContainerID + "\n" + args.IfName }

// add takes one address from each range set, all or none.
func (p plugin) add(args *skel.CmdArgs) error {
	requested, err := p.conf.requested(args.Args)
	if err != nil {
		return err
	}
	s, err := openStore(p.conf.scriptDir())
	if err != nil {
		return err
	}
	defer s.close()
	held, err := s.heldBy(holderOf(args))
	if err != nil {
		return err
	}
	if len(held) > 0 {
		switch p.conf.IPAM.RepeatedAdd {
		case "same":
			return p.print(p.described(held))
		case "another":
		default:
			return fmt.Errorf("%s is held by %s: duplicate allocation is not allowed", held[0], args.ContainerID)
		}
	}
	taken, err := p.take(s, holderOf(args), requested)
	if err != nil {
		return err
	}
	return p.print(taken)
}

func (p plugin) take(s *store, holder string, requested []netip.Addr) ([]*current.IPConfig, error) {
	var taken []*current.IPConfig
	for _, set := range p.conf.IPAM.Ranges {
		ip, r, err := takeFrom(s, holder, set, requested)
		if err != nil {
			return nil, errors.Join(err, s.free(holder))
		}
		requested = slices.DeleteFunc(requested, func(a netip.Addr) bool { return a == ip })
		taken = append(taken, ipConfig(ip, r))
	}
	if len(requested) > 0 {
		return nil, errors.Join(fmt.Errorf("requested addresses %s are in no range", requested), s.free(holder))
	}
	return taken, nil
}

// takeFrom reserves the requested address of a range set, or its lowest free one.
func takeFrom(s *store, holder string, set []rangeOfNet, requested []netip.Addr) (netip.Addr, rangeOfNet, error) {
	for _, r := range set {
		for _, ip := range requested {
			if !r.contains(ip) {
				continue
			}
			ok, err := s.reserve(ip, holder)
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
			if ok, err := s.reserve(ip, holder); ok || err != nil {
				return ip, r, err
			}
		}
	}
	return netip.Addr{}, rangeOfNet{}, fmt.Errorf("no addresses available in range set %v", set)
}

func (p plugin) described(held []netip.Addr) []*current.IPConfig {
	var ips []*current.IPConfig
	for _, set := range p.conf.IPAM.Ranges {
		for _, r := range set {
			for _, ip := range held {
				if r.contains(ip) {
					ips = append(ips, ipConfig(ip, r))
				}
			}
		}
	}
	return ips
}

func ipConfig(ip netip.Addr, r rangeOfNet) *current.IPConfig {
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

func (p plugin) del(args *skel.CmdArgs) error {
	s, err := openStore(p.conf.scriptDir())
	if err != nil {
		return err
	}
	defer s.close()
	return s.free(holderOf(args))
}

func (p plugin) check(args *skel.CmdArgs) error {
	switch p.conf.IPAM.Check {
	case "always-yes":
		return nil
	case "always-no":
		return errors.New("CHECK is not supported")
	}
	s, err := openStore(p.conf.scriptDir())
	if err != nil {
		return err
	}
	defer s.close()
	held, err := s.heldBy(holderOf(args))
	if err == nil && len(held) == 0 {
		err = fmt.Errorf("scripted: Failed to find address added by container %s", args.ContainerID)
	}
	return err
}

// status says that ADD can be served: the store is a folder.
func (p plugin) status(*skel.CmdArgs) error { return nil }
