package cli

import (
	"flag"
	"io"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/pkg/logging"
)

// logClient sends the messages of the Kubernetes client to our log. The client uses klog, whose
// settings are those of the process.
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
