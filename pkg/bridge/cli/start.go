package cli

import (
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/pkg/command"
	"github.com/delegated-ipam/delegated-ipam/pkg/options"
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
	hangups, stopHangups := command.Hangups()
	defer stopHangups()
	defer command.DumpGoroutines(cmd.ErrOrStderr())()
	if err := s.set.Resolve(d.env); err != nil {
		return command.Usage(err)
	}
	if err := s.validate(); err != nil {
		return command.Usage(err)
	}
	log, err := newLog(cmd.ErrOrStderr(), *s.log)
	if err != nil {
		return err
	}
	defer command.OnEach(hangups, func() { log.Info(s.onHangup) })()
	return s.serve(log)
}
