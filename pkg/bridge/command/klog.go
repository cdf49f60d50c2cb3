package command

import (
	"bytes"
	"flag"
	"io"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// logClient lets the log have what the Kubernetes client says. It logs by klog,
// whose settings are those of the process.
func logClient(log logrus.FieldLogger) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "one_output": "true", "skip_headers": "true", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	klog.SetOutput(lines{log})
	return nil
}

// lines makes each write one line of the log.
type lines struct{ log logrus.FieldLogger }

// Write logs a line; it never fails.
func (l lines) Write(line []byte) (int, error) {
	l.log.WithField("from", "client-go").Warn(string(bytes.TrimSpace(line)))
	return len(line), nil
}
