package unixsock

import (
	"context"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute

	// writeTimeout is above the 90 s after which Cilium's clients give up: they,
	// not we, end a request that takes long.
	writeTimeout = 100 * time.Second

	// maxHeader and maxBody are bytes. No operation of the API has a body.
	maxHeader = 64 << 10
	maxBody   = 64 << 10
)

// Server returns the HTTP server for a listener of Listen: with limits of time
// and size, and with the peer of each connection noted for Guard. What net/http
// has to say goes to the log as warnings. Any Host is accepted.
func Server(handler http.Handler, log logrus.FieldLogger) *http.Server {
	return &http.Server{
		Handler:           unwatched(bounded(handler)),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return withConn(withPeer(ctx, c), c) },
		ErrorLog:          serverLog(log),
	}
}

// bounded refuses to read a body of more than maxBody. Most requests have none.
func bounded(handler http.Handler) http.Handler {
	limited := http.MaxBytesHandler(handler, maxBody)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == http.NoBody {
			handler.ServeHTTP(w, r)
			return
		}
		limited.ServeHTTP(w, r)
	})
}

// serverLog is the standard library's kind of log over ours.
func serverLog(to logrus.FieldLogger) *log.Logger { return log.New(lines{to}, "", 0) }

// lines logs each write as one line.
type lines struct{ log logrus.FieldLogger }

// Write takes one message.
func (l lines) Write(p []byte) (int, error) {
	l.log.Warn(strings.TrimSpace(string(p)))
	return len(p), nil
}
