package unixsock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

const (
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute

	// writeTimeout is above the 90 s after which Cilium's clients end a request, so that they and not
	// the server end a slow one.
	writeTimeout = 100 * time.Second

	// maxHeader and maxBody are in bytes. A GC lists each interface of the node, 100 bytes for one, and an
	// ADD may have all annotations of a pod; only root makes them, so only root's may be so long.
	maxHeader     = 8 << 10
	maxBody       = 64 << 10
	maxOfRuntime  = 1 << 20
	ofRuntimePath = "/v1/cni/"
	listPath      = "/v1/ipam"

	// headerSlop is the number of bytes that net/http adds to http.Server.MaxHeaderBytes.
	headerSlop = 4 << 10
)

// Server returns the HTTP server for a listener of Listen. It limits the duration and the size of
// requests, adds each connection to the context for PeerFrom, and logs the errors of
// net/http as warnings. It accepts any Host.
func Server(handler http.Handler, logger logrus.FieldLogger) *http.Server {
	return &http.Server{
		Handler:           prepare(handler),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader - headerSlop,
		ConnContext:       withConn,
		ConnState:         trackIdle,
		ErrorLog:          log.New(logging.Writer(logger), "", 0),

		DisableGeneralOptionsHandler: true, // it responds to every peer, beside the limits
	}
}

// healthPaths are the paths of the requests that the limits of requests do not count.
var healthPaths = []string{"/v1/healthz", "/v1/config"}

// prepare reads the body of a request, refuses one above the limits, and reports the request to
// its connection.
func prepare(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, connected := r.Context().Value(connKey{}).(*conn)
		if connected {
			c.lines.Store(0) // its header has been read
		}
		operation := path.Clean(r.URL.EscapedPath()) // as the router does
		if r.Body != http.NoBody {
			limit := int64(maxBody)
			if peer, ok := PeerFrom(r.Context()); strings.HasPrefix(operation, ofRuntimePath) && ok && peer.UID == 0 {
				limit = maxOfRuntime
			}
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
			if err != nil {
				refuseBody(w, err)
				return
			}
			r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		}
		if connected {
			if begun, refusal := c.listener.begin(c, r.Method, operation); !begun {
				w.Header().Set("Connection", "close")
				w.Header().Set("Retry-After", "1")
				WriteError(w, http.StatusServiceUnavailable, refusal+" are in progress, which is the limit; try again")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// refuseBody responds to a request whose body cannot be read.
func refuseBody(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	if e, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		WriteError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", e.Limit))
		return
	}
	WriteError(w, http.StatusBadRequest, "the body cannot be read: "+err.Error())
}

// WriteError responds with a status code and the reason, in the one form that every error of the API has
// (swagger.yaml, Error). The client does not get it if that fails.
func WriteError(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(reason)
}
