package engine

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestReject(t *testing.T) {
	onlyRouter := onlyOwner("router")
	pools := []string{"green", "default"}
	v4, v6 := addr("10.0.0.77"), addr("fd00::1")
	for name, c := range map[string]struct {
		setup   setup
		request any
		kind    protocol.Kind
		words   []string
	}{
		"allocate: owner not served": {onlyRouter, AllocateRequest{Owner: "health"}, protocol.Forbidden, []string{"health", "--owners"}},
		"restore: owner not served":  {onlyRouter, RestoreRequest{Owner: "health", IP: v4}, protocol.Forbidden, []string{"health"}},
		"allocate: family disabled":  {ipv6Disabled, AllocateRequest{Family: record.IPv6}, protocol.FamilyDisabled, []string{"ipv6", "--enable-ipv6"}},
		"restore: family disabled":   {ipv6Disabled, RestoreRequest{IP: v6}, protocol.FamilyDisabled, nil},
		"release: family disabled":   {ipv6Disabled, ReleaseRequest{IP: v6}, protocol.FamilyDisabled, nil},
		"allocate: unknown pool":     {nil, AllocateRequest{Pool: "green"}, protocol.UnknownPool, pools},
		"restore: unknown pool":      {nil, RestoreRequest{Pool: "green", IP: v6}, protocol.UnknownPool, pools},
		"release: unknown pool":      {nil, ReleaseRequest{Pool: "green", IP: v6}, protocol.UnknownPool, pools},
		"release: unknown address":   {nil, ReleaseRequest{IP: v4}, protocol.NotFound, []string{"10.0.0.77"}},
	} {
		run(t, name, with(c.setup), func(f *fixture) {
			f.wantError(f.try(c.request), c.kind, c.words...)
			f.wantSteps("")
			f.wantNoAttachment()
		})
	}
	run(t, "record of a newer version", nil, func(f *fixture) {
		f.Engine = New(defaultOptions(), f.node, f.node)
		f.RejectOwner(client.DefaultPool, "router", errors.New("its record has version 99"))
		f.Start(nil)
		defer stop(f.t, f.Engine)
		f.wantError(f.tryAllocate("router"), protocol.Failed, "router", "version 99")
		f.wantSteps("")
	})
}

func TestPools(t *testing.T) {
	release := func(f *fixture, pool string, ip netip.Addr) error {
		return f.try(ReleaseRequest{IP: ip, Pool: pool})
	}
	run(t, "one attachment in each", with(bluePool), func(f *fixture) {
		a := f.allocate("router")
		b := f.allocateWith(AllocateRequest{Owner: "router", Pool: "blue"})
		if a.ContainerID == b.ContainerID {
			f.t.Fatalf("both have the container ID %s", a.ContainerID)
		}
		ip := b.Addrs()[0]
		f.wantError(release(f, client.DefaultPool, ip), protocol.NotFound)
		if err := release(f, "blue", ip); err != nil {
			f.t.Error(err)
		}
	})
	run(t, "release in a removed pool", with(bluePool), func(f *fixture) {
		b := f.allocateWith(AllocateRequest{Owner: "router", Pool: "blue"})
		f.restart()
		f.wantError(release(f, "blue", addr("10.0.0.77")), protocol.NotFound)
		for _, ip := range b.Addrs() {
			if err := release(f, "blue", ip); err != nil {
				f.t.Error(err)
			}
		}
		f.wantStored(0)
	})
	run(t, "release of a disabled family", nil, func(f *fixture) {
		f.allocate("router")
		f.restart(ipv6Disabled)
		f.release("10.0.0.1", "fd00::1")
		f.wantStored(0)
	})
}
