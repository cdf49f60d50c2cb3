package restapi

import (
	"context"
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

// maxOwner is the longest owner, in bytes (swagger.yaml, ipam-owner).
const maxOwner = 512

// parseIP reads the path parameter ip: a bare unicast address. A 4-in-6 address
// is the IPv4 address in it; a zone or a prefix length is refused.
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

// checkOwner refuses what the generated validation of ipam-owner lets through:
// it counts characters where the limit is in bytes, and its pattern takes an
// invalid byte for a character. The codes are those go-openapi uses itself.
func checkOwner(owner string) error {
	if len(owner) > maxOwner {
		return errors.New(errors.TooLongFailCode, "owner in query should be at most %d bytes long", maxOwner)
	}
	if !utf8.ValidString(owner) {
		return errors.New(errors.PatternFailCode, "owner in query should be valid UTF-8")
	}
	return nil
}

// unprocessable answers a refused parameter as go-openapi does: 422 with code and message.
func unprocessable(ctx context.Context, r *http.Request, err error) middleware.Responder {
	note(ctx, "error", err.Error())
	return middleware.ResponderFunc(func(rw http.ResponseWriter, _ runtime.Producer) {
		errors.ServeError(rw, r, err)
	})
}

// wellFormedQuery refuses a query that cannot be decoded. net/http drops such a
// parameter silently, so that a misspelt owner would become an empty one and
// get an attachment of its own.
func wellFormedQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := checkQuery(r.URL.RawQuery); err != nil {
			note(r.Context(), "error", err.Error())
			errors.ServeError(rw, r, errors.New(http.StatusUnprocessableEntity, "query cannot be decoded: %s", err))
			return
		}
		next.ServeHTTP(rw, r)
	})
}

// plainQuery is the length, in bytes, up to which a query has few enough parameters
// for anybody (net/url refuses more than 10,000).
const plainQuery = 4 << 10

// checkQuery fails where url.ParseQuery does. What that makes of a query is made again
// behind us, so that a plain one is only looked at: it has no semicolon, and its escapes
// are whole.
func checkQuery(query string) error {
	if len(query) <= plainQuery && !strings.Contains(query, ";") {
		if _, err := url.QueryUnescape(query); err == nil {
			return nil
		}
	}
	_, err := url.ParseQuery(query)
	return err
}
