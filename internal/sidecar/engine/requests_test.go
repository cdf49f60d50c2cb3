package engine

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

func TestReject(t *testing.T) {
	allocate := func(owner, pool string, family record.Family) func(*fixture) error {
		return func(f *fixture) error {
			return f.tryAllocateWith(AllocateRequest{Owner: owner, Pool: pool, Family: family})
		}
	}
	restore := func(owner, pool, ip string) func(*fixture) error {
		return func(f *fixture) error {
			_, err := f.Restore(context.Background(), RestoreRequest{Owner: owner, Pool: pool, IP: addr(ip)})
			return err
		}
	}
	release := func(pool, ip string) func(*fixture) error {
		return func(f *fixture) error {
			_, err := f.Release(context.Background(), ReleaseRequest{Pool: pool, IP: addr(ip)})
			return err
		}
	}
	for name, c := range map[string]struct {
		setup setup
		do    func(*fixture) error
		kind  protocol.Kind
		words []string
	}{
		"allocate: owner not served": {onlyOwner("router"), allocate("health", "", ""), protocol.Forbidden, []string{"health", "--owners"}},
		"restore: owner not served":  {onlyOwner("router"), restore("health", "", "10.0.0.1"), protocol.Forbidden, []string{"health"}},
		"allocate: family disabled":  {ipv6Disabled, allocate("router", "", record.IPv6), protocol.FamilyDisabled, []string{"ipv6", "--enable-ipv6"}},
		"restore: family disabled":   {ipv6Disabled, restore("router", "", "fd00::1"), protocol.FamilyDisabled, nil},
		"release: family disabled":   {ipv6Disabled, release("", "fd00::1"), protocol.FamilyDisabled, nil},
		"allocate: unknown pool":     {nil, allocate("router", "green", ""), protocol.UnknownPool, []string{"green", "default"}},
		"restore: unknown pool":      {nil, restore("router", "green", "fd00::1"), protocol.UnknownPool, []string{"green", "default"}},
		"release: unknown pool":      {nil, release("green", "fd00::1"), protocol.UnknownPool, []string{"green", "default"}},
		"release: unknown address":   {nil, release("", "10.0.0.77"), protocol.NotFound, []string{"10.0.0.77"}},
	} {
		run(t, name, func(t *testing.T) {
			f := newFixture(t, c.setup)
			f.wantError(c.do(f), c.kind, c.words...)
			f.wantSteps("")
			f.wantNoAttachment()
		})
	}
	run(t, "record of a newer version", func(t *testing.T) {
		f := newFixture(t)
		f.Engine = New(defaultOptions(), f.node, f.node)
		f.RejectOwner(client.DefaultPool, "router", errors.New("its record has version 99"))
		f.Start(nil)
		defer stop(t, f.Engine)
		f.wantError(f.tryAllocate("router"), protocol.Failed, "router", "version 99")
		f.wantSteps("")
	})
}

func TestPools(t *testing.T) {
	release := func(f *fixture, pool string, ip netip.Addr) error {
		_, err := f.Release(context.Background(), ReleaseRequest{IP: ip, Pool: pool})
		return err
	}
	run(t, "one attachment in each", func(t *testing.T) {
		f := newFixture(t, bluePool)
		a := f.allocate("router")
		b := f.allocateWith(AllocateRequest{Owner: "router", Pool: "blue"})
		if a.ContainerID == b.ContainerID {
			t.Fatalf("both have the container ID %s", a.ContainerID)
		}
		ip := b.Addrs()[0]
		f.wantError(release(f, client.DefaultPool, ip), protocol.NotFound)
		if err := release(f, "blue", ip); err != nil {
			t.Error(err)
		}
	})
	run(t, "release in a removed pool", func(t *testing.T) {
		f := newFixture(t, bluePool)
		b := f.allocateWith(AllocateRequest{Owner: "router", Pool: "blue"})
		f.restart()
		f.wantError(release(f, "blue", addr("10.0.0.77")), protocol.NotFound)
		for _, ip := range b.Addrs() {
			if err := release(f, "blue", ip); err != nil {
				t.Error(err)
			}
		}
		f.wantStored(0)
	})
	run(t, "release of a disabled family", func(t *testing.T) {
		f := newFixture(t)
		f.allocate("router")
		f.restart(ipv6Disabled)
		f.release("10.0.0.1", "fd00::1")
		f.wantStored(0)
	})
}
