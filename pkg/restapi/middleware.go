package restapi

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-openapi/errors"
	"github.com/sirupsen/logrus"
)

// notesKey is the context key under which a request's notes are found.
type notesKey struct{}

// note adds a field to the log line of the request. It belongs to the goroutine
// that serves the request.
func note(ctx context.Context, key string, value any) {
	if fields, ok := ctx.Value(notesKey{}).(logrus.Fields); ok {
		fields[key] = value
	}
}

// logged writes one line for the outcome of each request: what changes addresses
// at info, questions that were answered at debug (probes ask every few seconds),
// failures of ours at warning.
func logged(log logrus.FieldLogger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		began := time.Now()
		fields := logrus.Fields{"method": r.Method, "path": r.URL.Path}
		query := r.URL.Query()
		for parameter, field := range map[string]string{"owner": "owner", "pool": "poolName", "family": "family"} {
			// Of a repeated parameter the generated code takes the last.
			if n := len(query[parameter]); n > 0 && query[parameter][n-1] != "" {
				fields[field] = query[parameter][n-1]
			}
		}
		seen := &statusWriter{ResponseWriter: rw}
		next.ServeHTTP(seen, r.WithContext(context.WithValue(r.Context(), notesKey{}, fields)))
		fields["code"] = seen.code
		fields["duration"] = time.Since(began)
		line := log.WithFields(fields)
		switch {
		case seen.code >= http.StatusInternalServerError:
			line.Warn("request failed")
		case r.Method == http.MethodGet && seen.code < http.StatusMultipleChoices:
			line.Debug("request answered")
		default:
			line.Info("request answered")
		}
	})
}

// recovered answers 500 to a request whose handler panicked, as far as nothing
// has been answered yet, so that one request cannot end the process. Generated
// code panics, too, when an answer cannot be written because the client is gone.
func recovered(log logrus.FieldLogger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if r.Context().Err() != nil {
				note(r.Context(), "error", fmt.Sprintf("the client was gone before its answer: %v", cause))
				return
			}
			note(r.Context(), "error", fmt.Sprint(cause))
			log.WithField("stacktrace", string(debug.Stack())).Errorf("panic in %s %s: %v", r.Method, r.URL.Path, cause)
			if w, ok := rw.(*statusWriter); ok && w.code != 0 {
				return
			}
			errors.ServeError(rw, r, errors.New(http.StatusInternalServerError, "internal error"))
		}()
		next.ServeHTTP(rw, r)
	})
}

// statusWriter remembers the status code; 0 until there is one.
type statusWriter struct {
	http.ResponseWriter
	code int
}

// WriteHeader remembers and passes on the status code.
func (w *statusWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write is an implicit 200 if no status code was set (net/http, ResponseWriter).
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
