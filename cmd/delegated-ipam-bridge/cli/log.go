package cli

import (
	"flag"
	"io"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// newLog returns the log of a command, which also gets the messages of the Kubernetes client. A wrong
// option is an error of usage.
func newLog(stderr io.Writer, o options.Log) (*logrus.Logger, error) {
	log, err := logging.New(stderr, o.LogLevel, o.LogFormat == options.LogJSON)
	if err != nil {
		return nil, cmdline.Usage(err)
	}
	return log, logClient(log)
}

// logClient sends the messages of the Kubernetes client to a log. The client uses klog, whose settings
// are those of the process.
func logClient(log logrus.FieldLogger) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "one_output": "true", "skip_headers": "true", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	klog.SetOutput(logging.Writer(log.WithField("from", "client-go")))
	return nil
}
