package cli

import (
	"flag"
	"io"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// service is a command that serves until a signal ends it.
type service struct {
	set *options.Set
	log *options.Log
	// validate checks the resolved options.
	validate func() error
	// onHangup is logged at SIGHUP.
	onHangup string
	serve    func(logrus.FieldLogger) error
}

// start resolves the options of a service, creates its log, handles SIGHUP and SIGUSR1, and serves. An
// invalid option is an error of usage.
func (d dependencies) start(cmd *cobra.Command, s service) error {
	hangups, stopHangups := cmdline.Hangups()
	defer stopHangups()
	defer cmdline.DumpGoroutines(cmd.ErrOrStderr())()
	if err := s.set.Resolve(d.env); err != nil {
		return cmdline.Usage(err)
	}
	if err := s.validate(); err != nil {
		return cmdline.Usage(err)
	}
	log, err := newLog(cmd.ErrOrStderr(), *s.log)
	if err != nil {
		return err
	}
	defer cmdline.OnEach(hangups, func() { log.Info(s.onHangup) })()
	return s.serve(log)
}

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
// are global.
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
