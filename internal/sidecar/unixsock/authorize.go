package unixsock

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/response"
)

// healthPath is open to every peer, so that a probe needs no privilege.
const healthPath = "/v1/healthz"

// Callers are the users and groups that may call the API, besides root and our own user.
type Callers struct {
	// UIDs are user IDs (--allow-uids).
	UIDs []int
	// GIDs are IDs of primary or supplementary groups (--allow-gids).
	GIDs []int
}

// Allow reports whether a peer may call the API.
func (c Callers) Allow(p Peer) bool {
	return privileged(p) || slices.Contains(c.UIDs, p.UID) ||
		slices.Contains(c.GIDs, p.GID) ||
		slices.ContainsFunc(p.Groups, func(g int) bool { return slices.Contains(c.GIDs, g) })
}

// privileged reports whether a peer is root or our own user.
func privileged(p Peer) bool { return p.UID == 0 || p.UID == os.Geteuid() }

// Privileged reports whether the peer that sent a request, from its context, is root or our own user.
func Privileged(ctx context.Context) bool {
	peer, known := PeerFrom(ctx)
	return known && privileged(peer)
}

// maxLoggedRequest is how much of a method and a path is logged, in bytes.
const maxLoggedRequest = 256

// Authorize returns a handler that passes requests of allowed callers to next. Other requests get
// 403 without a body (swagger.yaml, as in Cilium), with the reason in a header, and are logged to
// refusals, except GET /v1/healthz, which is passed to health without headers and parameters that
// health ignores. It must be served by Server, which adds the peer to the context; a request without
// a known peer gets 403 too.
func Authorize(next, health http.Handler, callers Callers, refusals *logging.Repeated) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, known := PeerFrom(r.Context())
		switch {
		case known && callers.Allow(peer):
			next.ServeHTTP(w, r)
		case r.Method == http.MethodGet && r.URL.Path == healthPath:
			health.ServeHTTP(w, healthRequest(r))
		default:
			refusals.Warn(logrus.Fields{
				logging.FieldRequestID: logging.RequestID(r.Context()),
				"request":              logging.Shorten(r.Method+" "+r.URL.Path, maxLoggedRequest),
				"peerPID":              peer.PID, "peerUID": peer.UID, "peerGID": peer.GID,
			}, "Caller rejected; --allow-uids and --allow-gids allow more callers")
			w.Header().Set(response.ReasonHeader, refusedCaller(peer, known))
			w.WriteHeader(http.StatusForbidden)
		}
	})
}

// refusedCaller returns why a caller gets no response: it may know its own user and group.
func refusedCaller(p Peer, known bool) string {
	if !known {
		return "the kernel did not report the user of the caller"
	}
	if p.UID == unmappedID {
		return "the caller's user has no mapping in the user namespace of the sidecar: expected one that has"
	}
	return fmt.Sprintf("a caller of user ID %d and group ID %d may not call: expected one that --allow-uids or --allow-gids names", p.UID, p.GID)
}

// healthRequest returns a request for health that has the headers of the operation and no more of
// r: a refused caller could get errors that are logged.
func healthRequest(r *http.Request) *http.Request {
	h := r.WithContext(r.Context())
	h.URL, h.RequestURI = &url.URL{Path: healthPath}, healthPath
	h.Body, h.ContentLength, h.TransferEncoding = http.NoBody, 0, nil
	h.Header = http.Header{}
	for _, name := range []string{"Brief", "Require-K8s-Connectivity"} {
		if values, ok := r.Header[name]; ok {
			h.Header[name] = values
		}
	}
	return h
}
