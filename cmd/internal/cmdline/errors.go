package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// Exit codes of a process.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// ExitError is an error with an exit code other than ExitFailed.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of the cause.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// Usagef is Usage with a text as of fmt.Errorf.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Usage returns the error of a command line, environment or configuration directory that cannot
// work: an *ExitError with ExitUsage, nil if err is nil. Its text has the name, the value and what
// is expected.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{ExitUsage, err}
}

// flagError returns the error of a flag that cannot be read (cobra's FlagErrorFunc).
func flagError(_ *cobra.Command, err error) error { return Usage(options.FlagError("", err)) }

// Args accepts exactly these arguments, named as in the help text.
func Args(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		want := strings.Join(names, " ")
		switch {
		case len(names) == 0 && len(args) > 0:
			return Usagef("got %q; expected no argument", args)
		case len(args) < len(names):
			return Usagef("%s is missing; expected %s", names[len(args)], want)
		case len(args) > len(names):
			return Usagef("got %d arguments %q; expected %s", len(args), args, want)
		}
		return nil
	}
}

// Execute runs a command tree and returns the exit code; an error is printed to stderr, without
// cobra's own texts. args are the arguments without the name of the program.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	// Never nil: cobra would then read the arguments of the process.
	root.SetArgs(append([]string{}, args...))
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	for i, line := range strings.Split(err.Error(), "\n") {
		if i == 0 {
			line = "Error: " + line
		}
		fmt.Fprintln(stderr, logging.Printable(line))
	}
	exit, ok := errors.AsType[*ExitError](err)
	if !ok {
		return ExitFailed
	}
	if exit.Code == ExitUsage {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
	return exit.Code
}
