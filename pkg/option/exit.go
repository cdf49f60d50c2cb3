package option

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// What a process ends with.
const (
	// Done is a success.
	Done = 0
	// Failed is a refusal or a failure.
	Failed = 1
	// Usage is wrong usage.
	Usage = 2
)

// Status is a failure with an exit status of its own.
type Status struct {
	Code int
	Err  error
}

// Error returns the reason as a person reads it.
func (s *Status) Error() string { return s.Err.Error() }

// Unwrap returns the cause.
func (s *Status) Unwrap() error { return s.Err }

// Execute runs a command line and returns what the process should end with; the
// reason of a failure is on stderr. args are the arguments without the program's name.
func Execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	// Never nil: cobra would then read the arguments of the process.
	root.SetArgs(append([]string{}, args...))
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return Done
	}
	for i, line := range strings.Split(err.Error(), "\n") {
		if i == 0 {
			line = "Error: " + line
		}
		fmt.Fprintln(stderr, Printable(line))
	}
	if wrong := (*UsageError)(nil); errors.As(err, &wrong) {
		fmt.Fprintf(stderr, "Run '%s --help' to see what it takes.\n", cmd.CommandPath())
		return Usage
	}
	if own := (*Status)(nil); errors.As(err, &own) {
		return own.Code
	}
	return Failed
}
