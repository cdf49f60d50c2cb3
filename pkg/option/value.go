// Package option is how the programs take options: values whose refusals say what
// they take, wrong usage, exit status, version and log.
package option

import (
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Value is a pflag.Value whose refusal says what the option takes.
type Value[T any] struct {
	Target *T
	// Kind stands for the value in the help text.
	Kind string
	// Takes is what a person must give, in words.
	Takes string
	// Parse reads a value, and Show writes one as Parse would read it.
	Parse func(string) (T, error)
	Show  func(T) string
}

// Set reads a value from text.
func (v *Value[T]) Set(text string) error {
	got, err := v.Parse(text)
	if err != nil {
		return Expected(v.Takes)
	}
	*v.Target = got
	return nil
}

// String is the present value as Set would read it.
func (v *Value[T]) String() string { return v.Show(*v.Target) }

// Type stands for the value in the help text.
func (v *Value[T]) Type() string { return v.Kind }

// Expected is a refusal in which the caller puts what it got in front.
func Expected(takes string) error { return fmt.Errorf("expected %s", takes) }

// Text takes any text.
func Text(target *string, kind string) *Value[string] {
	return &Value[string]{
		Target: target, Kind: kind, Takes: "text",
		Parse: func(s string) (string, error) { return s, nil },
		Show:  func(s string) string { return s },
	}
}

// Bool takes true or false.
func Bool(target *bool) *Value[bool] {
	return &Value[bool]{Target: target, Kind: "bool", Takes: "true or false", Parse: strconv.ParseBool, Show: strconv.FormatBool}
}

// AddSwitch adds an option that is on or off; its name alone turns it on.
func AddSwitch(flags *pflag.FlagSet, target *bool, name, usage string) {
	flags.Var(Bool(target), name, usage)
	flags.Lookup(name).NoOptDefVal = "true"
}

// Duration takes a duration with its unit.
func Duration(target *time.Duration) *Value[time.Duration] {
	return &Value[time.Duration]{
		Target: target, Kind: "duration", Takes: "a duration with its unit, such as 500ms, 30s or 10m",
		Parse: time.ParseDuration, Show: time.Duration.String,
	}
}

// Count takes a whole number.
func Count(target *int) *Value[int] {
	return &Value[int]{Target: target, Kind: "count", Takes: "a whole number", Parse: strconv.Atoi, Show: strconv.Itoa}
}

// Address takes an IP address, or nothing for none; takes says of which family.
func Address(target *netip.Addr, takes string) *Value[netip.Addr] {
	return &Value[netip.Addr]{Target: target, Kind: "address", Takes: takes, Parse: optional(netip.ParseAddr), Show: shown[netip.Addr]}
}

// Prefix takes an IP prefix, or nothing for none; takes says of which family.
func Prefix(target *netip.Prefix, takes string) *Value[netip.Prefix] {
	return &Value[netip.Prefix]{Target: target, Kind: "prefix", Takes: takes, Parse: optional(netip.ParsePrefix), Show: shown[netip.Prefix]}
}

// optional lets an empty text stand for no value: a ConfigMap has its keys
// whether they are used or not.
func optional[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(s string) (T, error) {
		if s == "" {
			var none T
			return none, nil
		}
		return parse(s)
	}
}

func shown[T interface {
	fmt.Stringer
	IsValid() bool
}](v T) string {
	if !v.IsValid() {
		return ""
	}
	return v.String()
}

// Mode reads permission bits as chmod takes them.
func Mode(target *fs.FileMode) *Value[fs.FileMode] {
	return &Value[fs.FileMode]{
		Target: target, Kind: "mode", Takes: "octal permission bits from 0000 to 0777, such as 0660",
		Parse: func(s string) (fs.FileMode, error) {
			bits, err := strconv.ParseUint(s, 8, 32)
			if err == nil && bits > uint64(fs.ModePerm) {
				err = strconv.ErrRange
			}
			return fs.FileMode(bits), err
		},
		Show: func(m fs.FileMode) string { return fmt.Sprintf("%04o", uint32(m)) },
	}
}

// Choice takes one of a few words.
func Choice(target *string, choices ...string) *Value[string] {
	return &Value[string]{
		Target: target, Kind: strings.Join(choices, "|"), Takes: "one of " + strings.Join(choices, ", "),
		Parse: func(s string) (string, error) {
			for _, c := range choices {
				if s == c {
					return c, nil
				}
			}
			return "", strconv.ErrSyntax
		},
		Show: func(s string) string { return s },
	}
}
