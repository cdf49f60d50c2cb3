package cli

import (
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
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
