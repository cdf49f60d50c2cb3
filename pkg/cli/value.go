package cli

import (
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// value is a pflag.Value whose refusal says what the option takes.
type value[T any] struct {
	target *T
	// kind stands for the value in the help text.
	kind string
	// takes is what a person must give, in words.
	takes string
	parse func(string) (T, error)
	show  func(T) string
}

// Set reads a value from text.
func (v *value[T]) Set(text string) error {
	got, err := v.parse(text)
	if err != nil {
		return expected(v.takes)
	}
	*v.target = got
	return nil
}

// String is the present value as Set would read it.
func (v *value[T]) String() string { return v.show(*v.target) }

// Type stands for the value in the help text.
func (v *value[T]) Type() string { return v.kind }

// expected is a refusal in which the caller puts what it got in front.
func expected(takes string) error { return fmt.Errorf("expected %s", takes) }

func textValue(target *string, kind string) *value[string] {
	return &value[string]{
		target: target, kind: kind, takes: "text",
		parse: func(s string) (string, error) { return s, nil },
		show:  func(s string) string { return s },
	}
}

func boolValue(target *bool) *value[bool] {
	return &value[bool]{target: target, kind: "bool", takes: "true or false", parse: strconv.ParseBool, show: strconv.FormatBool}
}

// addSwitch adds an option that is on or off; its name alone turns it on.
func addSwitch(flags *pflag.FlagSet, target *bool, name, usage string) {
	flags.Var(boolValue(target), name, usage)
	flags.Lookup(name).NoOptDefVal = "true"
}

func durationValue(target *time.Duration) *value[time.Duration] {
	return &value[time.Duration]{
		target: target, kind: "duration", takes: "a duration with its unit, such as 500ms, 30s or 10m",
		parse: time.ParseDuration, show: time.Duration.String,
	}
}

func countValue(target *int) *value[int] {
	return &value[int]{target: target, kind: "count", takes: "a whole number", parse: strconv.Atoi, show: strconv.Itoa}
}

func addressValue(target *netip.Addr, takes string) *value[netip.Addr] {
	return &value[netip.Addr]{target: target, kind: "address", takes: takes, parse: optional(netip.ParseAddr), show: shown[netip.Addr]}
}

func prefixValue(target *netip.Prefix, takes string) *value[netip.Prefix] {
	return &value[netip.Prefix]{target: target, kind: "prefix", takes: takes, parse: optional(netip.ParsePrefix), show: shown[netip.Prefix]}
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

// modeValue reads permission bits as chmod takes them.
func modeValue(target *fs.FileMode) *value[fs.FileMode] {
	return &value[fs.FileMode]{
		target: target, kind: "mode", takes: "octal permission bits from 0000 to 0777, such as 0660",
		parse: func(s string) (fs.FileMode, error) {
			bits, err := strconv.ParseUint(s, 8, 32)
			if err == nil && bits > uint64(fs.ModePerm) {
				err = strconv.ErrRange
			}
			return fs.FileMode(bits), err
		},
		show: func(m fs.FileMode) string { return fmt.Sprintf("%04o", uint32(m)) },
	}
}

// choiceValue takes one of a few words.
func choiceValue(target *string, choices ...string) *value[string] {
	return &value[string]{
		target: target, kind: strings.Join(choices, "|"), takes: "one of " + strings.Join(choices, ", "),
		parse: func(s string) (string, error) {
			for _, c := range choices {
				if s == c {
					return c, nil
				}
			}
			return "", strconv.ErrSyntax
		},
		show: func(s string) string { return s },
	}
}
