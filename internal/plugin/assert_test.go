package plugin

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// wantError fails the test if err is not a *call.Error with the outcome and text.
func wantError(t *testing.T, err error, outcome call.Outcome, text string) *call.Error {
	t.Helper()
	var e *call.Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want a *call.Error", err)
	}
	if e.Outcome != outcome {
		t.Errorf("got outcome %q (%v), want %q", e.Outcome, err, outcome)
	}
	wantText(t, err, text)
	return e
}

// wantText fails the test if err is nil or lacks one of the texts.
func wantText(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got error %v, want one with %q", err, text)
		}
	}
}

// ipsOf returns the addresses and gateways of a result.
func ipsOf(r call.Result) string {
	var texts []string
	for _, a := range r.Addresses {
		text := a.Prefix.String()
		if a.Gateway.IsValid() {
			text += " via " + a.Gateway.String()
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// request returns addresses as the engine requests them where it knows no subnet.
func request(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, ip := range addrs(texts...) {
		all = append(all, netip.PrefixFrom(ip, ip.BitLen()))
	}
	return all
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}
