package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a command line, environment or configuration folder that asks
// for what cannot be. The text names what was wrong, what it got and what it takes.
type usageError struct{ err error }

// Error returns the reason as a person reads it.
func (e *usageError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *usageError) Unwrap() error { return e.err }

func wrongUsage(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// wrongFlag is the answer to a flag that cannot be read.
func wrongFlag(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return wrongValue("--"+invalid.GetFlag().Name, err)
	}
	return &usageError{err}
}

// wrongValue says of a value where it came from, what it is, and what would do.
func wrongValue(where string, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return wrongUsage("%s: %w", where, err)
	}
	return wrongUsage("%s is %q; %w", where, invalid.GetValue(), invalid.Unwrap())
}
