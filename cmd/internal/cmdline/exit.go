package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// Exit codes of a process.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// ExitError is an error with an exit code other than those that all commands share.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of the cause.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// Execute runs a command tree and returns the exit code; an error is printed to stderr. args are
// the arguments without the name of the program.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
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
	if usage := (*UsageError)(nil); errors.As(err, &usage) {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
		return ExitUsage
	}
	if exit := (*ExitError)(nil); errors.As(err, &exit) {
		return exit.Code
	}
	return ExitFailed
}
