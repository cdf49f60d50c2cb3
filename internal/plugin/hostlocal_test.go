package plugin

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

func TestRealHostLocalVerbs(t *testing.T) {
	for name, c := range map[string]struct {
		directory, version string
		status             bool
	}{
		"plugins v1.9.1": {realPlugins, "1.1.0", true},
		"plugins v1.4.0": {oldPlugins, "1.0.0", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRealFrom(t, c.directory, dualStack)
			target := f.call("id")
			if got := target.Invocation; got.CNIVersion != c.version || got.HasStatus() != c.status || !got.HasCheck() {
				t.Errorf("got CNI version %s with STATUS %v and CHECK %v, want %s with %v and true", got.CNIVersion, got.HasStatus(), got.HasCheck(), c.version, c.status)
			}
			got := f.wantAdd(target, firstIPs)
			if want := `{"cniVersion":"` + c.version + `",`; !strings.HasPrefix(string(got.Raw), want) {
				t.Errorf("got the raw result %s, want it to begin %s", got.Raw, want)
			}
			wantError(t, f.run(call.VerbAdd, target), call.Refused, "duplicate allocation is not allowed")
			target.PrevResult = got.Raw
			f.must(target, call.VerbCheck, call.VerbStatus, call.VerbDel, call.VerbDel)
			f.wantLeases()
			err := f.run(call.VerbCheck, target)
			if wantError(t, err, call.Refused, "Failed to find address"); !call.IsLost(target.Invocation, err) {
				t.Errorf("got not lost after a DEL: %v", err)
			}
			target.Requested = request("10.1.0.77", "fd00::77")
			f.wantAdd(target, "10.1.0.77/24 via 10.1.0.1, fd00::77/120 via fd00::1")
		})
	}
}

func TestOlderHostLocal(t *testing.T) {
	f := newRealFrom(t, oldPlugins, dualStack)
	target := f.call("id")
	target.PrevResult = []byte(goodResult) // of CNI 1.1.0, and the old one supports 1.0.0
	f.must(target, call.VerbAdd, call.VerbCheck, call.VerbDel)
	f.wantLeases()
}

func TestRealHostLocalRequest(t *testing.T) {
	for name, c := range map[string]struct {
		honoured     profile.Request
		capabilities string
		ips          []string
	}{
		"args.cni.ips":      {profile.RequestArgsCNI, `{}`, []string{"10.1.0.77", "fd00::77"}},
		"runtimeConfig.ips": {profile.RequestRuntimeConfig, `{"ips":true}`, []string{"10.1.0.77", "fd00::77"}},
		"CNI_ARGS":          {profile.RequestCNIArgs, `{}`, []string{"fd00::77"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newReal(t, dualStack)
			f.configure(dualStack, c.capabilities)
			target := f.call("id")
			target.Invocation.Profile.Requests = []profile.Request{c.honoured}
			target.Requested = request(c.ips...)
			wantAddrs(t, f.add(target), addrs(c.ips...)...)
			f.must(target, call.VerbDel)
		})
	}
}

func TestRealHostLocalRanges(t *testing.T) {
	for name, c := range map[string]struct{ ranges, want string }{
		"IPv4":                    {`[[{"subnet":"10.1.0.0/24"}]]`, "10.1.0.2/24 via 10.1.0.1"},
		"IPv6":                    {`[[{"subnet":"fd00::/120","gateway":"fe80::1"}]]`, "fd00::1/120 via fe80::1"},
		"both":                    {`[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]`, firstIPs},
		"the first range is full": {`[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.1","rangeEnd":"10.1.0.1"},{"subnet":"10.2.0.0/24","rangeStart":"10.2.0.9"}]]`, "10.2.0.9/24 via 10.2.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newReal(t, `{"type":"host-local","dataDir":"DIR","ranges":`+c.ranges+`}`)
			f.wantAdd(f.call("id"), c.want)
		})
	}
}

// Trap: host-local's errors are all code 999, so that only their text has the reason.
func TestRealHostLocalExhausted(t *testing.T) {
	f := newReal(t, `{"type":"host-local","dataDir":"DIR","ranges":[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.7","rangeEnd":"10.1.0.7"}]]}`)
	f.add(f.call("first"))
	e := wantError(t, f.run(call.VerbAdd, f.call("second")), call.Refused, "no IP addresses available in range set")
	if e.Code != 999 {
		t.Errorf("got code %d, want 999, as all of its errors have", e.Code)
	}
	f.wantLeases("10.1.0.7")
}

// BenchmarkAddAndDel measures a plugin and its runner, without journal and engine.
func BenchmarkAddAndDel(b *testing.B) {
	r, target, _ := newRealBenchmark(b, dualStack)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Add(b.Context(), target); err != nil {
			b.Fatal(err)
		}
		if err := r.Del(b.Context(), target); err != nil {
			b.Fatal(err)
		}
	}
}
