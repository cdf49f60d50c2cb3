// Package cli is the command line: commands, flags, and what they print.
package cli

import (
	"context"
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// program is what the commands need of the world around them.
type program struct {
	version string
	env     map[string]string
	now     func() time.Time
	serve   func(context.Context, app.Config, logrus.FieldLogger) error
	// requestLimit is how long one request may take.
	requestLimit time.Duration
	// pollEvery is how often `release --all` looks whether the plugin has everything.
	pollEvery time.Duration
}

// Run runs one command line and returns the exit status: 0 done, 1 refused or
// failed, 2 wrong usage; the reason of 1 and 2 is on stderr. args are the
// arguments without the program's name and environ the environment as
// os.Environ gives it. version may be empty; the build information of the
// binary is shown then. A command ends early when ctx does.
func Run(ctx context.Context, args, environ []string, stdout, stderr io.Writer, version string) int {
	p := program{
		version: option.Version(version),
		env:     option.Environment(environ),
		now:     time.Now,
		serve:   app.Run,
		// As long as Cilium's own client waits (pkg/client of Cilium).
		requestLimit: 90 * time.Second,
		pollEvery:    time.Second,
	}
	return p.run(ctx, args, stdout, stderr)
}

func (p program) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return option.Execute(ctx, p.rootCommand(), args, stdout, stderr)
}
