package unixsock

import (
	"net/http"
	"os"
	"slices"

	"github.com/sirupsen/logrus"
)

// healthPath may be asked by everybody, so that a probe needs no privilege.
const healthPath = "/v1/healthz"

// Callers are who may call, besides root and our own user, who always may.
type Callers struct {
	// UIDs are users (--allow-uids).
	UIDs []int
	// GIDs are groups, primary or supplementary (--allow-gids).
	GIDs []int
}

// Allow tells whether a peer may call.
func (c Callers) Allow(p Peer) bool {
	return p.UID == 0 || p.UID == os.Geteuid() || slices.Contains(c.UIDs, p.UID) ||
		slices.Contains(c.GIDs, p.GID) ||
		slices.ContainsFunc(p.Groups, func(g int) bool { return slices.Contains(c.GIDs, g) })
}

// Authorize lets the requests of callers through to next. Others get 403 without a
// body (swagger.yaml, as in Cilium), and nothing behind it sees them; only
// GET /v1/healthz is everybody's. Requests must come through Server, which
// notes the peer: one without a known peer is refused.
func Authorize(next http.Handler, callers Callers, log logrus.FieldLogger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, known := PeerFrom(r.Context())
		if known && callers.Allow(peer) || r.Method == http.MethodGet && r.URL.Path == healthPath {
			next.ServeHTTP(w, r)
			return
		}
		log.WithFields(logrus.Fields{
			"request": r.Method + " " + r.URL.Path, "peerPID": peer.PID, "peerUID": peer.UID, "peerGID": peer.GID,
		}).Warn("caller refused; --allow-uids and --allow-gids say who may call")
		w.WriteHeader(http.StatusForbidden)
	})
}
