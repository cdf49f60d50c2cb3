// Package logging builds the log of a program, and makes foreign text safe to print.
package logging

import (
	"bytes"
	"context"
	"io"

	"github.com/sirupsen/logrus"
)

// New returns a log that writes to out, as JSON or as text; text is coloured on a terminal only,
// which logrus detects. The error is that level is not one of logrus.
func New(out io.Writer, level string, asJSON bool) (*logrus.Logger, error) {
	least, err := logrus.ParseLevel(level)
	if err != nil {
		return nil, err
	}
	l := logrus.New()
	l.SetOutput(out)
	l.SetLevel(least)
	l.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	if asJSON {
		l.SetFormatter(&logrus.JSONFormatter{})
	}
	return l, nil
}

// Writer returns a writer that logs each write as one warning, for libraries that log lines. It
// never fails.
func Writer(log logrus.FieldLogger) io.Writer { return warnings{log} }

type warnings struct{ log logrus.FieldLogger }

func (w warnings) Write(line []byte) (int, error) {
	w.log.Warn(string(bytes.TrimSpace(line)))
	return len(line), nil
}

// Discard returns a log that writes nothing.
func Discard() *logrus.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.PanicLevel) // no line is formatted
	return l
}

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
