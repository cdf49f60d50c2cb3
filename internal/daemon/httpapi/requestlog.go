package httpapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// requestIDHeader is the header of a request's ID in requests and responses.
const requestIDHeader = "X-Request-Id"

// requestID matches the IDs that callers may choose.
var requestID = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// maxRequest and maxText are how much of the method with the path, and of another text, is
// logged, in bytes: callers choose them.
const (
	maxRequest = 256
	maxText    = 4 << 10
)

// requestLogKey is the context key of a request's log.
type requestLogKey struct{}

// requestLog collects what handlers report about a request. It belongs to the goroutine that
// serves the request.
type requestLog struct{ fields logrus.Fields }

// newRequestLog gives a request an ID, which its response and its log lines have. It is the
// caller's if that is valid and sent once, otherwise a random one.
func newRequestLog(w http.ResponseWriter, r *http.Request) (*requestLog, *http.Request) {
	id := rand.Text()
	if sent := r.Header[requestIDHeader]; len(sent) == 1 && requestID.MatchString(sent[0]) {
		id = sent[0]
	}
	w.Header().Set(requestIDHeader, id)
	l := &requestLog{fields: logrus.Fields{logging.FieldRequestID: id}}
	return l, r.WithContext(context.WithValue(logging.WithRequestID(r.Context(), id), requestLogKey{}, l))
}

// logField adds a field to the log line of the request.
func logField(ctx context.Context, key string, value any) {
	if l, ok := ctx.Value(requestLogKey{}).(*requestLog); ok {
		l.fields[key] = value
	}
}

// refusalKind is the kind of a response with a code of 400 to 499, which callers can cause at will.
type refusalKind struct {
	uid       int
	operation string
	code      int
}

// writeLog writes the log line of a request: at warning for a failure of the daemon or the
// plugin, at debug for a successful GET (probes send one every few seconds), otherwise at info.
// Refusals of one kind are counted instead after the first one.
func (a *API) writeLog(l *requestLog, r *http.Request, operation string, code int, duration time.Duration) {
	level, message := logrus.InfoLevel, "Request completed"
	switch {
	case code >= http.StatusInternalServerError:
		level, message = logrus.WarnLevel, "Request failed"
	case r.Method == http.MethodGet && code < http.StatusMultipleChoices:
		level = logrus.DebugLevel
	}
	if _, logged := l.fields["poolName"]; !logged {
		l.addQuery(r)
	}
	for key, value := range l.fields {
		if text, ok := value.(string); ok {
			l.fields[key] = logging.Shorten(text, maxText)
		}
	}
	l.fields["request"], l.fields["code"], l.fields["duration"] = requestName(r), code, duration
	if code >= http.StatusBadRequest && code < http.StatusInternalServerError {
		peer, _ := a.Peer(r.Context())
		l.fields["peerUID"] = peer.UID
		a.Refusals.Log(refusalKind{peer.UID, operation, code}, level, l.fields, message)
		return
	}
	a.log.WithFields(l.fields).Log(level, message)
}

// addQuery adds the parameters of a request that was refused before its handler logged them.
func (l *requestLog) addQuery(r *http.Request) {
	query := r.URL.Query()
	for parameter, key := range map[string]string{"owner": "owner", "pool": "poolName", "family": "family"} {
		// The generated code takes the last value of a repeated parameter.
		if values := query[parameter]; len(values) > 0 && values[len(values)-1] != "" {
			l.fields[key] = logging.Shorten(values[len(values)-1], maxOwner)
		}
	}
}

// requestName returns method and path for the log.
func requestName(r *http.Request) string { return logging.Shorten(r.Method+" "+r.URL.Path, maxRequest) }
