package httpapi

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// healthPath is open to every peer, so that a probe needs no privilege.
const healthPath = "/v1/healthz"

// authorize returns the handler of a request and the request for it; nil for a caller who may not
// send it. A caller who may not call the API gets GET /v1/healthz, without headers and parameters
// that it ignores.
func (a *API) authorize(operation string, r *http.Request) (http.Handler, *http.Request) {
	peer, known := a.Peer(r.Context())
	switch {
	case !known || !a.Callers.Allow(peer):
		if r.Method != http.MethodGet || r.URL.Path != healthPath {
			return nil, r
		}
		if a.StateOnly {
			return http.HandlerFunc(a.serveState), healthRequest(r)
		}
		return a.server, healthRequest(r)
	case operation == metricsOperation:
		return a.Metrics, r
	default:
		return a.server, r
	}
}

// healthRequest returns a request for the status that has the headers of the operation and no more
// of r: a refused caller could get errors that are logged.
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

// refuseCaller responds with 403 and the reason, and logs the request.
func (a *API) refuseCaller(w *writer, r *http.Request) {
	peer, known := a.Peer(r.Context())
	a.Refusals.Log(refusalKind{uid: peer.UID}, logrus.WarnLevel, logrus.Fields{
		logging.FieldRequestID: logging.RequestID(r.Context()), "request": requestName(r),
		"peerPID": peer.PID, "peerUID": peer.UID, "peerGID": peer.GID,
	}, "Caller rejected; --allow-uids and --allow-gids allow more callers")
	unixsock.WriteError(w, http.StatusForbidden, callerRefusal(peer, known))
	_ = w.send() // the log has the refusal anyway
}

// callerRefusal returns why a caller may not call: it may know its own user and group.
func callerRefusal(p unixsock.Peer, known bool) string {
	if !known {
		return "the kernel did not report the user of the caller"
	}
	if p.UID == unixsock.UnmappedID {
		return "the caller's user has no mapping in the user namespace of the daemon: expected one that has"
	}
	return fmt.Sprintf("a caller of user ID %d and group ID %d may not call: expected one that --allow-uids or --allow-gids names", p.UID, p.GID)
}
