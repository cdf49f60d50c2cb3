// Package logging builds the log of a program, and makes foreign text safe to print.
package logging

import (
	"bytes"
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
