// Package cli is the command line of delegated-ipam: commands, their flags and their output.
package cli

import (
	"context"
	"io"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
)

// dependencies are the inputs of the commands from their process; tests replace them.
type dependencies struct {
	version string
	env     map[string]string
	now     func() time.Time
	serve   func(context.Context, sidecar.Config, logrus.FieldLogger) error
	// requestLimit is the time limit of one request.
	requestLimit time.Duration
	// pollInterval is the interval at which `release --all` lists the remaining attachments.
	pollInterval time.Duration
}

// Run is the command.Run of delegated-ipam.
func Run(ctx context.Context, args, environ []string, stdout, stderr io.Writer, version string) int {
	return cmdline.Execute(ctx, Command(environ, version), args, stdout, stderr)
}

// Command returns the command tree with the defaults that it has in an environment. version is as
// in command.Run.
func Command(environ []string, version string) *cobra.Command {
	d := dependencies{
		version: cmdline.Version(version),
		env:     options.Environment(environ),
		now:     time.Now,
		serve:   sidecar.Run,
		// As long as Cilium's own client waits (pkg/client of Cilium).
		requestLimit: 90 * time.Second,
		pollInterval: time.Second,
	}
	return d.command()
}
