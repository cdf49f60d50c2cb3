package option

import (
	"io"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"
)

// Formats of the log (--log-format).
const (
	LogText = "text"
	LogJSON = "json"
)

// Level takes the names of logrus, without panic and fatal: this program
// writes no such lines.
func Level(target *logrus.Level) *Value[logrus.Level] {
	var names []string
	for _, l := range []logrus.Level{logrus.ErrorLevel, logrus.WarnLevel, logrus.InfoLevel, logrus.DebugLevel, logrus.TraceLevel} {
		names = append(names, l.String())
	}
	return &Value[logrus.Level]{
		Target: target, Kind: strings.Join(names, "|"), Takes: "one of " + strings.Join(names, ", "),
		Parse: func(s string) (logrus.Level, error) {
			l, err := logrus.ParseLevel(s)
			if err == nil && l < logrus.ErrorLevel {
				err = strconv.ErrRange
			}
			return l, err
		},
		Show: logrus.Level.String,
	}
}

// NewLog writes to out. Text has colours on a terminal only (logrus looks itself).
func NewLog(out io.Writer, level logrus.Level, format string) *logrus.Logger {
	l := logrus.New()
	l.SetOutput(out)
	l.SetLevel(level)
	l.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	if format == LogJSON {
		l.SetFormatter(&logrus.JSONFormatter{})
	}
	return l
}
