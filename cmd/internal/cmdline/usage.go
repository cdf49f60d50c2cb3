package cmdline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

// UsageError is the error of a command line, environment or configuration directory that cannot
// work. Its text has the name, the value and what is expected.
type UsageError struct{ Err error }

// Error returns the text of the cause.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a *UsageError with a text as of fmt.Errorf.
func Usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// Usage returns err as a *UsageError, nil if it is nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &UsageError{Err: err}
}

// FlagError returns the error of a flag that cannot be read (cobra's FlagErrorFunc).
func FlagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		err = options.InvalidValue("--"+invalid.GetFlag().Name, err)
	}
	return Usage(err)
}

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
