package logging

import (
	"context"

	"github.com/sirupsen/logrus"
)

// FieldRequestID is the log field of a request's ID.
const FieldRequestID = "requestID"

// requestIDKey is the context key of a request's ID.
type requestIDKey struct{}

// WithRequestID returns a context of the request with an ID.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the ID of the request that a context belongs to; empty for none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// ForRequest returns a logger that adds the ID of the request that a context belongs to, if it has
// one.
func ForRequest(ctx context.Context, log logrus.FieldLogger) logrus.FieldLogger {
	if id := RequestID(ctx); id != "" {
		return log.WithField(FieldRequestID, id)
	}
	return log
}
