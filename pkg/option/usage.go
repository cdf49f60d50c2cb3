package option

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UsageError is a command line, environment or configuration folder that asks
// for what cannot be. The text names what was wrong, what it got and what it takes.
type UsageError struct{ Err error }

// Error returns the reason as a person reads it.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// WrongUsage is a *UsageError with a text as of fmt.Errorf.
func WrongUsage(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// WrongFlag is the answer to a flag that cannot be read.
func WrongFlag(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return WrongValue("--"+invalid.GetFlag().Name, err)
	}
	return &UsageError{Err: err}
}

// WrongValue says of a value where it came from, what it is, and what would do.
func WrongValue(where string, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return WrongUsage("%s: %w", where, err)
	}
	return WrongUsage("%s is %q; %w", where, invalid.GetValue(), invalid.Unwrap())
}
