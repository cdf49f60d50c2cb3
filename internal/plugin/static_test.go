package plugin

import (
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

const (
	staticIPAM = `{"type":"static","addresses":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"address":"fd00::5/64"}]}`
	staticIPs  = "10.1.0.5/24 via 10.1.0.1, fd00::5/64"
)

// Trap: static's CHECK needs prevResult. Without it the error is about the call, and proves nothing
// about the address.
func TestRealStaticVerbs(t *testing.T) {
	f := newReal(t, staticIPAM)
	target := f.call("id")
	got := f.wantAdd(target, staticIPs)
	err := f.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "prevResult")
	if call.IsLost(target.Invocation, err) {
		t.Error("a CHECK without prevResult means lost, want a failed check")
	}
	target.PrevResult = got.Raw
	f.must(target, call.VerbCheck, call.VerbStatus, call.VerbDel, call.VerbCheck)
	f.wantAdd(target, staticIPs)
}

// Trap: static allocates the same address to every attachment by design, which causes no alarm.
func TestRealStaticSharedAddress(t *testing.T) {
	f := newReal(t, staticIPAM)
	f.wantAdd(f.call("one"), staticIPs)
	another := f.call("another")
	f.wantAdd(another, staticIPs)
	if another.Invocation.Profile.Unique {
		t.Error("by the profile addresses are unique")
	}
}

// Trap: GC (spec 1.1) by the container runtime. static keeps nothing that it could free.
func TestRealStaticGC(t *testing.T) {
	f := newReal(t, staticIPAM)
	target := f.call("id")
	target.PrevResult = f.add(target).Raw
	f.gc(target, `[]`)
	f.must(target, call.VerbCheck)
	f.wantAdd(target, staticIPs)
}

func TestRealStaticRequest(t *testing.T) {
	for name, c := range map[string]struct {
		honoured     profile.Request
		capabilities string
		ips          []string
		want         string
	}{
		"args.cni.ips":                   {profile.RequestArgsCNI, `{}`, []string{"10.1.0.77/24", "fd00::77/64"}, "10.1.0.77/24, fd00::77/64"},
		"runtimeConfig.ips":              {profile.RequestRuntimeConfig, `{"ips":true}`, []string{"10.1.0.77/24", "fd00::77/64"}, "10.1.0.77/24, fd00::77/64"},
		"CNI_ARGS, besides configured":   {profile.RequestCNIArgs, `{}`, []string{"10.1.0.77/24"}, staticIPs + ", 10.1.0.77/24"},
		"full length for unknown subnet": {profile.RequestArgsCNI, `{}`, []string{"10.1.0.77/32"}, "10.1.0.77/32"},
		// The convention that replaces the configured addresses comes first.
		"all": {"", `{"ips":true}`, []string{"10.1.0.77/24"}, "10.1.0.77/24"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newReal(t, staticIPAM)
			f.configure(staticIPAM, c.capabilities)
			target := f.call("id")
			if c.honoured != "" {
				target.Invocation.Profile.Requests = []profile.Request{c.honoured}
			}
			for _, text := range c.ips {
				target.Requested = append(target.Requested, netip.MustParsePrefix(text))
			}
			f.wantAdd(target, c.want)
			target.Invocation.Profile.RequestForm = profile.FormAddress
			wantError(t, f.run(call.VerbAdd, target), call.Refused, "CIDR notation")
		})
	}
}

func TestRealStaticCheckComparesGateway(t *testing.T) {
	f := newReal(t, staticIPAM)
	target := f.call("id")
	target.PrevResult = []byte(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.9"}]}`)
	err := f.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "Failed to match addr")
	if !call.IsLost(target.Invocation, err) {
		t.Errorf("got not lost: %v", err)
	}
}
