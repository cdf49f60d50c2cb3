package options

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// Address accepts an IP address, or nothing for none; expected names its family.
func Address(target *netip.Addr, expected string) Value {
	return &scalar[netip.Addr]{target: target, kind: "address", expected: expected, parse: orZero(netip.ParseAddr), format: formatValid[netip.Addr]}
}

// Addresses accepts a list of IP addresses and prefixes; an address is a prefix of full length.
func Addresses(target *[]netip.Prefix) Value {
	return &list[netip.Prefix]{
		target: target, kind: "addresses", expected: "IP addresses and prefixes without host bits, such as 10.0.0.1 or fd00::/120, separated by commas",
		parse: parseAddresses,
	}
}

// parseAddresses accepts an address without a zone, or a prefix whose host bits are zero: another one
// could be meant as an address with the length of its subnet.
func parseAddresses(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && (p != p.Masked() || p.Addr().Is4In6()) {
		err = errors.New("host bits, or a prefix of IPv4 addresses in IPv6 form")
	}
	return p, err
}

// Prefix accepts an IP prefix, or nothing for none; expected names its family.
func Prefix(target *netip.Prefix, expected string) Value {
	return &scalar[netip.Prefix]{target: target, kind: "prefix", expected: expected, parse: orZero(netip.ParsePrefix), format: formatValid[netip.Prefix]}
}

// orZero reads empty text as the zero value: a ConfigMap has its keys whether they are used or
// not.
func orZero[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(s string) (T, error) {
		if s == "" {
			var zero T
			return zero, nil
		}
		return parse(s)
	}
}

func formatValid[T interface {
	fmt.Stringer
	IsValid() bool
}](v T) string {
	if !v.IsValid() {
		return ""
	}
	return v.String()
}

// isIPv6 excludes IPv4 addresses in IPv6 form.
func isIPv6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

func isUnicast(a netip.Addr) bool { return !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == "" }

// ListenAddress completes the value of --metrics-address: the loopback address unless a host is
// named; empty for none. The error is that text is not host:port.
func ListenAddress(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return "", fmt.Errorf("--metrics-address is %q; expected %s", text, expectedListenAddress)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

const expectedListenAddress = "host:port, or :port for loopback only"

const unixScheme = "unix://"

// SocketEnv is the environment variable that names the socket to clients: a path, as for Cilium's own
// client (internal/defaults of Cilium, SockPathEnv).
const SocketEnv = "CILIUM_SOCK"

// Host declares the option that names the socket of the sidecar to a client, as cilium-dbg has
// it: unix:///path or a bare path.
func Host(target *string, env map[string]string) Option {
	socket := unixScheme + client.DefaultSocket
	o := Option{
		Name: "host", Short: "H", Value: host{text(target, "unix:///path")}, Default: socket,
		DefaultText: "$" + SocketEnv + ", else " + socket,
		Help:        "socket of the sidecar; a bare path is accepted",
	}
	if path := env[SocketEnv]; path != "" {
		o.Default = unixScheme + strings.TrimPrefix(path, unixScheme)
	}
	return o
}

// Socket returns the path in a value of --host.
func Socket(host string) string { return strings.TrimPrefix(host, unixScheme) }

// host is the Value of Host. Its default is taken as it is: a path from the environment that
// does not exist is reported when a client connects.
type host struct{ *scalar[string] }

// Set reads a path, with or without its scheme.
func (h host) Set(text string) error {
	socket := Socket(text)
	if socket == "" || strings.Contains(socket, "://") {
		return expect("the path of a unix socket, such as " + unixScheme + client.DefaultSocket)
	}
	*h.target = unixScheme + socket
	return nil
}

func (h host) setDefault(text string) error {
	*h.target = text
	return nil
}
