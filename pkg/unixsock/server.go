package unixsock

import (
	"context"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/logging"
)

const (
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute

	// writeTimeout is above the 90 s after which Cilium's clients end a request, so that they and not
	// the server end a slow one.
	writeTimeout = 100 * time.Second

	// maxHeader and maxBody are in bytes. No operation of the API has a body.
	maxHeader = 8 << 10
	maxBody   = 64 << 10

	// headerSlop is the number of bytes that net/http adds to http.Server.MaxHeaderBytes.
	headerSlop = 4 << 10
)

// Server returns the HTTP server for a listener of Listen. It limits the duration and the size of
// requests, adds the peer of each connection to the context for Authorize, and logs the errors of
// net/http as warnings. It accepts any Host.
func Server(handler http.Handler, logger logrus.FieldLogger) *http.Server {
	return &http.Server{
		Handler:           prepare(handler),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader - headerSlop,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return withConn(withPeer(ctx, c), c) },
		ErrorLog:          log.New(logging.Writer(logger), "", 0),
	}
}

// prepare limits the body of a request to maxBody and reports the request to its connection.
func prepare(next http.Handler) http.Handler {
	limited := http.MaxBytesHandler(next, maxBody)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.startRequest()
		}
		if r.Body == http.NoBody {
			next.ServeHTTP(w, r) // MaxBytesHandler would copy the request for nothing
			return
		}
		limited.ServeHTTP(w, r)
	})
}
