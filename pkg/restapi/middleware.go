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

// usualFields is how many fields the line of a request has.
const usualFields = 8

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
// failures of ours at warning. The answer is on its way before its line is written:
// no client waits for the log.
func logged(log logrus.FieldLogger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		began := time.Now()
		fields := make(logrus.Fields, usualFields)
		a := &answer{to: rw}
		next.ServeHTTP(a, r.WithContext(context.WithValue(r.Context(), notesKey{}, fields)))
		took := time.Since(began)
		if err := a.send(); err != nil {
			fields["error"] = fmt.Sprintf("the client was gone before its answer: %v", err)
		}
		line := log.WithFields(fields).WithFields(logrus.Fields{
			"method": r.Method, "path": r.URL.Path, "code": a.code, "duration": took,
		})
		switch {
		case a.code >= http.StatusInternalServerError:
			line.Warn("request failed")
		case r.Method == http.MethodGet && a.code < http.StatusMultipleChoices:
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
			if a, ok := rw.(*answer); ok && !a.forget() {
				return
			}
			errors.ServeError(rw, r, errors.New(http.StatusInternalServerError, "internal error"))
		}()
		next.ServeHTTP(rw, r)
	})
}
