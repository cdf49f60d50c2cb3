package delegate

import (
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

const staticPair = `{"type":"static","addresses":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"address":"fd00::5/64"}]}`

// Trap: static's CHECK needs prevResult. Without it the error is about the question,
// and says nothing of the address.
func TestTheRealStaticIsServedWithPrevResult(t *testing.T) {
	b := realBench(t, staticPair, `{}`)
	target := b.call("id")
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if text := describe(got); text != "10.1.0.5/24 via 10.1.0.1, fd00::5/64" {
		t.Errorf("got %s", text)
	}
	err = b.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "prevResult")
	if call.IsLost(target.Invocation, err) {
		t.Error("a CHECK without prevResult means lost, want it to mean that it could not be asked")
	}
	target.PrevResult = got.Raw
	for _, verb := range []string{call.VerbCheck, call.VerbStatus, call.VerbDel, call.VerbCheck} {
		if err := b.run(verb, target); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	again, err := b.runner.Add(t.Context(), target)
	if err != nil || describe(again) != describe(got) {
		t.Errorf("got %s (%v) from a second ADD, want the same answer", describe(again), err)
	}
}

// Trap: static gives everybody the same address by design, which is no alarm.
func TestTheRealStaticGivesEverybodyTheSameAddress(t *testing.T) {
	b := realBench(t, staticPair, `{}`)
	one, err := b.runner.Add(t.Context(), b.call("one"))
	if err != nil {
		t.Fatal(err)
	}
	target := b.call("another")
	another, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if describe(one) != describe(another) || target.Invocation.Profile.Unique {
		t.Errorf("got %s and %s with unique %v, want one address twice and a profile that knows it", describe(one), describe(another), target.Invocation.Profile.Unique)
	}
}

// Trap: GC (spec 1.1) by the container runtime. static keeps nothing that it could free.
func TestGCByARuntimeFreesNothingOfTheRealStatic(t *testing.T) {
	b := realBench(t, staticPair, `{}`)
	target := b.call("id")
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if stdout, exit := b.byHand("GC", target, gcConfig(t, target)); exit != 0 {
		t.Errorf("GC: exit status %d: %s", exit, stdout)
	}
	target.PrevResult = got.Raw
	b.must(call.VerbCheck, target)
	if again := b.add(target); again != describe(got) {
		t.Errorf("got %s after the GC, want %s as before", again, describe(got))
	}
}

func TestTheRealStaticIsAskedInCIDRForm(t *testing.T) {
	for name, c := range map[string]struct {
		honoured     profile.Request
		capabilities string
		ask          []string
		want         string
	}{
		"by args.cni.ips":                               {profile.RequestArgsCNI, `{}`, []string{"10.1.0.77/24", "fd00::77/64"}, "10.1.0.77/24, fd00::77/64"},
		"by runtimeConfig.ips":                          {profile.RequestRuntimeConfig, `{"ips":true}`, []string{"10.1.0.77/24", "fd00::77/64"}, "10.1.0.77/24, fd00::77/64"},
		"by CNI_ARGS, besides the configured":           {profile.RequestCNIArgs, `{}`, []string{"10.1.0.77/24"}, "10.1.0.5/24 via 10.1.0.1, fd00::5/64, 10.1.0.77/24"},
		"with the full length where no subnet is known": {profile.RequestArgsCNI, `{}`, []string{"10.1.0.77/32"}, "10.1.0.77/32"},
	} {
		t.Run(name, func(t *testing.T) {
			b := realBench(t, staticPair, c.capabilities)
			target := b.call("id")
			target.Invocation.Profile.Requests = []profile.Request{c.honoured}
			for _, text := range c.ask {
				target.Requested = append(target.Requested, netip.MustParsePrefix(text))
			}
			got, err := b.runner.Add(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if text := describe(got); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
			target.Invocation.Profile.RequestForm = profile.FormAddress
			wantError(t, b.run(call.VerbAdd, target), call.Refused, "CIDR notation")
		})
	}
}

func TestARequestToTheRealStaticPrefersTheConventionThatReplacesTheConfigured(t *testing.T) {
	b := realBench(t, staticPair, `{"ips":true}`)
	target := b.call("id")
	target.Requested = []netip.Prefix{netip.MustParsePrefix("10.1.0.77/24")}
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if text := describe(got); text != "10.1.0.77/24" {
		t.Errorf("got %s, want the address that was asked for and no other", text)
	}
}

func TestTheRealStaticComparesTheGatewayOfAConfiguredAddress(t *testing.T) {
	b := realBench(t, staticPair, `{}`)
	target := b.call("id")
	target.PrevResult = []byte(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.9"}]}`)
	err := b.run(call.VerbCheck, target)
	wantError(t, err, call.Refused, "Failed to match addr")
	if !call.IsLost(target.Invocation, err) {
		t.Errorf("got not lost: %v", err)
	}
}
