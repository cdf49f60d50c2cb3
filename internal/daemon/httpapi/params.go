package httpapi

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-openapi/errors"
	"github.com/go-openapi/runtime"
	"github.com/go-openapi/runtime/middleware"
)

// maxOwner is the maximum length of an owner in bytes (swagger.yaml, ipam-owner).
const maxOwner = 512

// parseIP parses the path parameter ip: a unicast address. A 4-in-6 address is the IPv4 address
// in it; a zone or a prefix length is an error.
func parseIP(s string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("address %q: expected an IPv4 or IPv6 address without a prefix length: %w", s, err)
	}
	if ip.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("address %q: expected no zone", s)
	}
	ip = ip.Unmap()
	if ip.IsUnspecified() || ip.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("address %q: expected a unicast address", s)
	}
	return ip, nil
}

// parseAlso parses the parameter also of a request for ip: an address as in the path, of the other
// family; the zero Addr if it is empty.
func parseAlso(text string, ip netip.Addr) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	also, err := parseIP(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("parameter also: %w", err)
	}
	if also.Is4() == ip.Is4() {
		return netip.Addr{}, fmt.Errorf("parameter also: address %s is of the same family as %s; expected one of the other family", also, ip)
	}
	return also, nil
}

// checkOwner returns an error for an owner that the generated validation of ipam-owner accepts
// by mistake: it counts characters where the limit is in bytes, and its pattern takes an invalid
// byte for a character.
func checkOwner(owner string) error {
	if len(owner) > maxOwner {
		return errors.New(errors.TooLongFailCode, "owner in query should be at most %d bytes long", maxOwner)
	}
	if !utf8.ValidString(owner) {
		return errors.New(errors.PatternFailCode, "owner in query should be valid UTF-8")
	}
	return nil
}

// invalidParameter returns the response to an invalid parameter.
func invalidParameter(r *http.Request, err error) middleware.Responder {
	logField(r.Context(), "error", err.Error())
	return middleware.ResponderFunc(func(rw http.ResponseWriter, _ runtime.Producer) {
		serveError(rw, r, err)
	})
}

// invalid returns an error for a request that the generated server must not get:
//
//   - one whose method is not in upper case. Methods are case-sensitive (RFC 9110 section 9.1), but
//     the generated server would take post for POST.
//   - one with a query that cannot be decoded. net/http drops such a parameter silently, so that a
//     misspelt owner would become an empty one and get a separate attachment.
func (a *API) invalid(r *http.Request) error {
	if !upperCase(r.Method) {
		// A request without a method is allowed all methods of the path.
		allowed := a.routes.AllowedMethods(&http.Request{URL: r.URL})
		if len(allowed) == 0 {
			return errors.NotFound("path %s was not found", r.URL.EscapedPath())
		}
		return errors.MethodNotAllowed(r.Method, allowed)
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return errors.New(http.StatusUnprocessableEntity, "query cannot be decoded: %s", err)
	}
	return nil
}

func upperCase(method string) bool { return method == strings.ToUpper(method) }
