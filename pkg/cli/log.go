package cli

import (
	"io"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"
)

// Formats of the log (--log-format).
const (
	logText = "text"
	logJSON = "json"
)

// levelValue takes the names of logrus, without panic and fatal: this program
// writes no such lines.
func levelValue(target *logrus.Level) *value[logrus.Level] {
	var names []string
	for _, l := range []logrus.Level{logrus.ErrorLevel, logrus.WarnLevel, logrus.InfoLevel, logrus.DebugLevel, logrus.TraceLevel} {
		names = append(names, l.String())
	}
	return &value[logrus.Level]{
		target: target, kind: strings.Join(names, "|"), takes: "one of " + strings.Join(names, ", "),
		parse: func(s string) (logrus.Level, error) {
			l, err := logrus.ParseLevel(s)
			if err == nil && l < logrus.ErrorLevel {
				err = strconv.ErrRange
			}
			return l, err
		},
		show: logrus.Level.String,
	}
}

// newLog writes to out. Text has colours on a terminal only (logrus looks itself).
func newLog(out io.Writer, level logrus.Level, format string) *logrus.Logger {
	l := logrus.New()
	l.SetOutput(out)
	l.SetLevel(level)
	l.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	if format == logJSON {
		l.SetFormatter(&logrus.JSONFormatter{})
	}
	return l
}
