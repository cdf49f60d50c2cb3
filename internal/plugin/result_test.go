package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/scenario"
)

// parse reads output as Add does.
func parse(stdout []byte, cniVersion string) (call.Result, error) {
	r, err := parseResult(context.Background(), stdout, cniVersion)
	if err != nil {
		return call.Result{}, err
	}
	return readResult(r, cniVersion, oneLink)
}

// oneLink is linkMAC of a machine with one interface.
func oneLink(name string) (string, error) {
	if name != "uplink" {
		return "", errors.New("no such link")
	}
	return "02:00:00:00:00:01", nil
}

// TestReadResult reads what plugins print, in testdata/results.
//
//evidence:operate/security it prints endlessly, no result, or more than 64 addresses
func TestReadResult(t *testing.T) {
	scenario.Each(t, "testdata/results/*.txt", func(t *testing.T, lines []string) {
		var got call.Result
		var err error
		for _, line := range lines {
			command, want, _ := strings.Cut(line, " ")
			switch command {
			case "read":
				version, printed, _ := strings.Cut(want, " ")
				got, err = parse([]byte(printed), version)
				continue
			case "error":
				check.Error(t, err)
				continue
			case "addresses":
				check.Equal(t, command, ipsOf(got), want)
			case "MAC":
				check.Equal(t, command, got.MasterMAC, want)
			case "kept":
				check.True(t, want == "-" || sameJSON(t, got.Raw, []byte(want)), "kept %s; want %s", got.Raw, want)
			}
			check.NoError(t, err)
		}
	})
}

// A result of each CNI version is read, and converted to each for CHECK and DEL.
func TestResultVersions(t *testing.T) {
	printed, err := create.CreateFromBytes([]byte(`{"cniVersion":"1.1.0",
		"interfaces":[{"name":"eth0","mac":"02:00:00:00:00:09","sandbox":"/ns"},{"mac":"02:00:00:00:00:0a"},{"name":"uplink"}],
		"ips":[{"address":"10.1.0.9/24","gateway":"169.254.1.1"},{"address":"fd00::9/64","gateway":"fe80::1"}],
		"routes":[{"dst":"0.0.0.0/0"},{"dst":"192.168.0.0/16","gw":"10.1.0.254"}],
		"dns":{"nameservers":["10.1.0.53"],"domain":"example.org","search":["a","b"],"options":["ndots:2"]}}`))
	check.Must(t, err)
	versions := version.All.SupportedVersions()
	// A new version is noticed.
	if got, want := strings.Join(versions, " "), "0.1.0 0.2.0 0.3.0 0.3.1 0.4.0 1.0.0 1.1.0"; got != want {
		t.Errorf("the library has %s, want %s", got, want)
	}
	for _, v := range versions {
		stdout, err := marshalAs(printed, v)
		check.Must(t, err)
		got, err := parse(stdout, v)
		check.Must(t, err)
		mac := ""
		if (call.Invocation{CNIVersion: v}).AtLeast("0.3.0") {
			mac = "02:00:00:00:00:0a"
		}
		if text := ipsOf(got); text != "10.1.0.9/24 via 169.254.1.1, fd00::9/64 via fe80::1" || got.MasterMAC != mac {
			t.Errorf("%s: got %s and MAC %q", v, text, got.MasterMAC)
		}
		for _, to := range versions {
			converted, err := resultAs(got.Raw, to)
			check.Must(t, err)
			if result, err := create.CreateFromBytes(converted); err != nil || result.Version() != to {
				t.Errorf("from %s to %s: got %s (%v)", v, to, converted, err)
			}
			for _, kept := range []string{"0.0.0.0/0", "192.168.0.0/16", "10.1.0.53", "example.org", "ndots:2"} {
				if !strings.Contains(string(converted), kept) {
					t.Errorf("from %s to %s: %s lacks %s", v, to, converted, kept)
				}
			}
		}
	}
}

// resultOf returns a result with n addresses.
func resultOf(n int) string {
	var ips []string
	for i := range n {
		ips = append(ips, fmt.Sprintf(`{"address":"10.1.0.%d/24"}`, i+1))
	}
	return `{"cniVersion":"1.1.0","ips":[` + strings.Join(ips, ",") + `]}`
}

func TestLargestResult(t *testing.T) {
	got, err := parse([]byte(resultOf(64)), "1.1.0")
	if err != nil || len(got.Addresses) != 64 {
		t.Errorf("got %d addresses, %v; want 64", len(got.Addresses), err)
	}
	_, err = parse([]byte(resultOf(65)), "1.1.0")
	check.Error(t, err)
	_, err = parse([]byte(goodResult+goodResult), "1.1.0")
	check.Error(t, err)
}

func TestLinkMAC(t *testing.T) {
	links, err := net.Interfaces()
	check.Must(t, err)
	for _, link := range links {
		if link.HardwareAddr == nil || link.Flags&net.FlagLoopback != 0 {
			continue
		}
		if mac, err := linkMAC(link.Name); err != nil || mac != link.HardwareAddr.String() {
			t.Errorf("got MAC %q (%v) of %s, want %s", mac, err, link.Name, link.HardwareAddr)
		}
	}
	if mac, err := linkMAC("lo"); err != nil || mac != "" {
		t.Errorf("got MAC %q (%v) of lo, want none, because it is all zeros", mac, err)
	}
	_, err = linkMAC("no-such-link")
	wantText(t, err, `"no-such-link"`)
}

// FuzzResult checks that any output of a plugin is an error, or a result that the engine can use and
// that parses again to the same.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{
		goodResult, goodError, `null`, `[]`, `{"ips":[null]}`, `{"cniVersion":"0.4.0","ips":[null]}`,
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.9/24","routes":[{"dst":"0.0.0.0/0"}]}}`,
		`{"interfaces":[null],"ips":[{"address":"fd00::9/64"}],"routes":[null],"dns":{"nameservers":["x"]}}`,
		`{"cniVersion":"0.3.1","ips":[{"version":"4","address":"10.0.0.0/0"}],"routes":[{}]}`,
		`{"CNIVersion":"1.0.0","ips":[{"address":"10.1.0.9/24"}]}`, `{"cniVersion":7,"ips":[{"address":"10.1.0.9/24"}]}`,
		`{"cniVersion":"","ips":[{"address":"10.1.0.9/24"}]}`, `{"cniVersion":"1.0.0","cniVersion":"","ips":[{"address":"10.1.0.9/24"}]}`,
		`{"cniVersion":"0.3.1","interfaces":[{"name":"uplink"}],"ips":[{"version":"6","address":"::ffff:1.2.3.4/99","interface":7}]}`,
	} {
		for i := range version.All.SupportedVersions() {
			f.Add([]byte(seed), uint8(i))
		}
	}
	versions := version.All.SupportedVersions()
	f.Fuzz(func(t *testing.T, stdout []byte, n uint8) {
		v := versions[int(n)%len(versions)]
		got, err := parse(stdout, v)
		if err != nil {
			return
		}
		seen := map[netip.Addr]bool{}
		for _, a := range got.Addresses {
			if !a.Prefix.IsValid() || a.Addr().Is4In6() || seen[a.Addr()] {
				t.Errorf("got address %v", a)
			}
			seen[a.Addr()] = true
		}
		if len(seen) == 0 {
			t.Error("got a result without an address")
		}
		if again, err := resultAs(got.Raw, v); err != nil || string(again) != string(got.Raw) {
			t.Errorf("the raw result %s does not parse again to the same: %s, %v", got.Raw, again, err)
		}
	})
}
