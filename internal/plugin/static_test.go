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
	f.must(target, call.VerbCheck, call.VerbStatus, call.VerbDel)
	f.gc(target) // of the container runtime; static keeps nothing that it could free
	f.must(target, call.VerbCheck)
	f.wantAdd(target, staticIPs)

	target.PrevResult = []byte(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.9"}]}`)
	err = f.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "Failed to match addr")
	if !call.IsLost(target.Invocation, err) {
		t.Errorf("a CHECK with another gateway is not lost: %v", err)
	}
}

func TestRealStaticRequest(t *testing.T) {
	all := newReal(t, staticIPAM).profiles["static"].Requests
	for name, c := range map[string]struct {
		honoured []profile.Request
		ips      []string
		want     string
	}{
		"CNI_ARGS, besides configured":   {[]profile.Request{profile.RequestCNIArgs}, []string{"10.1.0.77/24"}, staticIPs + ", 10.1.0.77/24"},
		"full length for unknown subnet": {[]profile.Request{profile.RequestArgsCNI}, []string{"10.1.0.77/32"}, "10.1.0.77/32"},
		// The convention that replaces the configured addresses comes first.
		"all": {all, []string{"10.1.0.77/24"}, "10.1.0.77/24"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newReal(t, staticIPAM)
			f.configure(staticIPAM, `{"ips":true}`)
			target := f.call("id")
			target.Invocation.Profile.Requests = c.honoured
			for _, text := range c.ips {
				target.Requested = append(target.Requested, netip.MustParsePrefix(text))
			}
			f.wantAdd(target, c.want)
			target.Invocation.Profile.RequestForm = profile.FormAddress
			wantError(t, f.run(call.VerbAdd, target), call.Refused, "CIDR notation")
		})
	}
}
