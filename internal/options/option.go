// Package options declares the options of the programs: name, default, sources, validation and
// help text, each in one place.
package options

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// Option declares one option.
type Option struct {
	// Name is the flag without its dashes. The environment variable and the file in
	// --config-dir are named after it, for options that have these sources.
	Name string
	// Short is the one-letter flag, empty for none.
	Short string
	// Value reads the option and is bound to the field that it sets.
	Value *Value
	// Default is the value that applies without any source, as Value reads it; empty to leave the
	// field as it is.
	Default string
	// DefaultText replaces Default in help and docs, for a default that depends on the machine.
	DefaultText string
	// Help is a verb or noun phrase with the unit and the meaning of special values.
	Help string
	// Valid reports whether the field has an allowed value once all options are read; nil if
	// every value that Value reads is allowed.
	Valid func() bool
	// Expected is what Valid accepts, as in "expected 0s or more".
	Expected string
}

// Register sets each option to its default and adds it to the flags of a command. A default that
// its own Value cannot read is a programming error and panics.
func Register(flags *pflag.FlagSet, all ...Option) {
	for _, o := range all {
		if o.Default != "" {
			if err := o.Value.set(o.Default, false); err != nil {
				panic(fmt.Sprintf("default %q of --%s: %v", o.Default, o.Name, err))
			}
		}
		f := flags.VarPF(o.Value, o.Name, o.Short, o.Help)
		f.DefValue = cmp.Or(o.DefaultText, f.DefValue)
		if o.Value.kind == boolKind {
			f.NoOptDefVal = "true" // the name alone turns it on
		}
	}
}

// flags returns options as flags, with their defaults.
func flags(all []Option) *pflag.FlagSet {
	s := pflag.NewFlagSet("", pflag.ContinueOnError)
	Register(s, all...)
	return s
}

// validate returns an error for each option with a value that is not allowed.
func validate(all []Option) error {
	var errs []error
	for _, o := range all {
		valid, expected := o.Valid, o.Expected
		if valid == nil {
			valid, expected = o.Value.valid, o.Value.expected
		}
		if valid != nil && !valid() {
			errs = append(errs, fmt.Errorf("--%s is %q; expected %s", o.Name, o.Value, expected))
		}
	}
	return errors.Join(errs...)
}

// FlagError returns the error of a FlagSet. Of a value that an option cannot read it has the source, by default
// the flag, the value, and the expected values.
func FlagError(source string, err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	return fmt.Errorf("%s is %q; %w", cmp.Or(source, "--"+invalid.GetFlag().Name), invalid.GetValue(), invalid.Unwrap())
}
