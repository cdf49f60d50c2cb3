package restapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-openapi/errors"
	"github.com/sirupsen/logrus"
)

// notesKey is the context key under which a request's notes are found.
type notesKey struct{}

// notes are the fields of a request's log line besides those that each has.
type notes struct {
	fields []noted
	usual  [usualNotes]noted
	// undelivered, if not nil, is called when the client does not get the response.
	undelivered func()
}

// usualFields is how many fields the line of a request has when all goes well. Each
// line's are copied twice by the logger, and a map of up to eight is one block.
const usualFields = 8

// usualNotes is how many there are when all goes well: owner, poolName and family as
// asked for; containerID, owner and ipAddrs as they are.
const usualNotes = 6

type noted struct {
	key   string
	value any
}

// note adds a field to the log line of the request; of several with one key the
// last counts. It belongs to the goroutine that serves the request.
func note(ctx context.Context, key string, value any) {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok {
		n.fields = append(n.fields, noted{key, value})
	}
}

// onUndelivered sets what is called if the client does not get the response of the
// operation, now or, where that can be found out, later.
func onUndelivered(ctx context.Context, f func()) {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok {
		n.undelivered = f
	}
}

// watch calls undelivered if the response was not sent, or not that of the operation;
// otherwise it leaves that to onUnread.
func (n *notes) watch(ctx context.Context, code int, sendErr error, onUnread func(context.Context, func())) {
	switch {
	case n.undelivered == nil:
	case sendErr != nil || code >= http.StatusMultipleChoices:
		n.undelivered()
	case onUnread != nil:
		onUnread(ctx, n.undelivered)
	}
}

// logged writes one line for the outcome of each request: what changes addresses
// at info, questions that were answered at debug (probes ask every few seconds),
// failures of ours at warning. The answer is on its way before its line is made:
// no client waits for the log.
func logged(log logrus.FieldLogger, onUnread func(context.Context, func()), next http.Handler) http.Handler {
	base := log.WithFields(nil)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		began := time.Now()
		var n notes
		n.fields = n.usual[:0]
		ctx := context.WithValue(r.Context(), notesKey{}, &n)
		a := &answer{to: rw, head: r.Method == http.MethodHead}
		next.ServeHTTP(a, r.WithContext(ctx))
		took := time.Since(began)
		err := a.send()
		if err != nil {
			note(ctx, "error", fmt.Sprintf("the client was gone before its answer: %v", err))
		}
		n.watch(ctx, a.code, err, onUnread)
		level, message := logrus.InfoLevel, "request answered"
		switch {
		case a.code >= http.StatusInternalServerError:
			level, message = logrus.WarnLevel, "request failed"
		case r.Method == http.MethodGet && a.code < http.StatusMultipleChoices:
			level = logrus.DebugLevel
		}
		if !base.Logger.IsLevelEnabled(level) {
			return // a line that nobody reads is not made
		}
		fields := n.line(r, base.Data)
		fields["code"], fields["duration"] = a.code, took
		// WithFields would copy them.
		(&logrus.Entry{Logger: base.Logger, Data: fields}).Log(level, message)
	})
}

// line is what is always said, and what was noted. Of a request that was refused before
// anybody noted what it asks for it is what stands in the query.
func (n *notes) line(r *http.Request, always logrus.Fields) logrus.Fields {
	fields := make(logrus.Fields, len(always)+usualFields)
	maps.Copy(fields, always)
	fields["request"] = r.Method + " " + r.URL.Path
	for _, f := range n.fields {
		fields[f.key] = f.value
	}
	if _, understood := fields["poolName"]; understood {
		return fields
	}
	query := r.URL.Query()
	for parameter, field := range map[string]string{"owner": "owner", "pool": "poolName", "family": "family"} {
		// Of a repeated parameter the generated code takes the last.
		if values := query[parameter]; len(values) > 0 && values[len(values)-1] != "" {
			fields[field] = values[len(values)-1]
		}
	}
	return fields
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
