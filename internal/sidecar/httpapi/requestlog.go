package httpapi

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

const (
	// usualFields is the number of log fields of a successful request. The logger copies the
	// fields of each line twice, and a map of up to eight is one block.
	usualFields = 8
	// usualLogged is how many of them are added before the response: requestID; owner, poolName and
	// family of the request; containerID, owner and ipAddrs of the attachment.
	usualLogged = 7

	// maxRequest and maxText are how much of the method with the path, and of another text, is
	// logged, in bytes: callers choose them.
	maxRequest = 256
	maxText    = 4 << 10
)

// requestLogKey is the context key of a request's log.
type requestLogKey struct{}

// requestLog collects what handlers report about a request. It belongs to the goroutine that
// serves the request.
type requestLog struct {
	// fields are log fields; of several with one key the last counts.
	fields []field
	buffer [usualLogged]field
	// undelivered, if not nil, is called when the client does not get the response.
	undelivered func()
}

// field is one log field.
type field struct {
	key   string
	value any
}

// onUnreadFunc is the type of Options.OnUnread.
type onUnreadFunc = func(ctx context.Context, f func())

func newRequestLog() *requestLog {
	l := &requestLog{}
	l.fields = l.buffer[:0]
	return l
}

func (l *requestLog) inContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestLogKey{}, l)
}

func (l *requestLog) add(key string, value any) { l.fields = append(l.fields, field{key, value}) }

// logField adds a field to the log line of the request.
func logField(ctx context.Context, key string, value any) {
	if l, ok := ctx.Value(requestLogKey{}).(*requestLog); ok {
		l.add(key, value)
	}
}

// onUndelivered sets what is called if the client does not get the response of the operation,
// also if that is found out after the request.
func onUndelivered(ctx context.Context, f func()) {
	if l, ok := ctx.Value(requestLogKey{}).(*requestLog); ok {
		l.undelivered = f
	}
}

// reportUndelivered calls undelivered if the response of the operation was not sent, or an
// error in its place; otherwise onUnread does so if the client does not read it.
func (l *requestLog) reportUndelivered(ctx context.Context, code int, sendErr error, onUnread onUnreadFunc) {
	switch {
	case l.undelivered == nil:
	case sendErr != nil || code >= http.StatusMultipleChoices:
		l.undelivered()
	case onUnread != nil:
		onUnread(ctx, l.undelivered)
	}
}

// write writes the log line of a request: at warning for a failure of the sidecar or the
// plugin, at debug for a successful GET (probes send one every few seconds), otherwise at info.
func (l *requestLog) write(log *logrus.Entry, r *http.Request, code int, duration time.Duration) {
	level, message := logrus.InfoLevel, "Request completed"
	switch {
	case code >= http.StatusInternalServerError:
		level, message = logrus.WarnLevel, "Request failed"
	case r.Method == http.MethodGet && code < http.StatusMultipleChoices:
		level = logrus.DebugLevel
	}
	if !log.Logger.IsLevelEnabled(level) {
		return // the fields are not collected for nothing
	}
	fields := l.collect(r, log.Data)
	fields["code"], fields["duration"] = code, duration
	// WithFields would copy them.
	(&logrus.Entry{Logger: log.Logger, Data: fields}).Log(level, message)
}

// collect returns the fields of the logger and of the request. For a request that was refused
// before its handler logged the parameters they are taken from the query.
func (l *requestLog) collect(r *http.Request, base logrus.Fields) logrus.Fields {
	fields := make(logrus.Fields, len(base)+usualFields)
	maps.Copy(fields, base)
	fields["request"] = requestName(r)
	for _, f := range l.fields {
		if text, ok := f.value.(string); ok && len(text) > maxText {
			f.value = logging.Shorten(text, maxText)
		}
		fields[f.key] = f.value
	}
	if _, logged := fields["poolName"]; logged {
		return fields
	}
	query := r.URL.Query()
	for parameter, key := range map[string]string{"owner": "owner", "pool": "poolName", "family": "family"} {
		// The generated code takes the last value of a repeated parameter.
		if values := query[parameter]; len(values) > 0 && values[len(values)-1] != "" {
			fields[key] = logging.Shorten(values[len(values)-1], maxOwner)
		}
	}
	return fields
}

// requestName returns method and path for the log.
func requestName(r *http.Request) string { return logging.Shorten(r.Method+" "+r.URL.Path, maxRequest) }
