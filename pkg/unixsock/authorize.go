package unixsock

import (
	"net/http"
	"os"
	"slices"

	"github.com/sirupsen/logrus"
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

// Authorize returns a handler that passes requests of allowed callers to next. Other requests get
// 403 without a body (swagger.yaml, as in Cilium), except GET /v1/healthz. It must be served by
// Server, which adds the peer to the context; a request without a known peer gets 403 too.
func Authorize(next http.Handler, callers Callers, log logrus.FieldLogger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, known := PeerFrom(r.Context())
		if known && callers.Allow(peer) || r.Method == http.MethodGet && r.URL.Path == healthPath {
			next.ServeHTTP(w, r)
			return
		}
		log.WithFields(logrus.Fields{
			"request": r.Method + " " + r.URL.Path, "peerPID": peer.PID, "peerUID": peer.UID, "peerGID": peer.GID,
		}).Warn("caller rejected; --allow-uids and --allow-gids allow more callers")
		w.WriteHeader(http.StatusForbidden)
	})
}
