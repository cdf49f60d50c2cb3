package options

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Value reads an option from text into the field that it is bound to. It is a pflag.Value whose
// error names the expected values.
type Value struct {
	// kind stands for the value in the help text.
	kind string
	// set reads the field from text; add keeps the elements that a list has.
	set func(text string, add bool) error
	// format returns the field as set reads it.
	format func() string
	// valid and expected are as in Option, for the field alone.
	valid    func() bool
	expected string
	// given reports that Set was called: a list is repeatable, but the first Set replaces the default.
	given bool
}

// Set reads the value from text.
func (v *Value) Set(text string) error {
	err := v.set(text, v.given)
	v.given = v.given || err == nil
	if err == nil && v.valid != nil && !v.valid() {
		return expect(v.expected)
	}
	return err
}

// must sets the allowed values of the field.
func (v *Value) must(valid func() bool, expected string) *Value {
	v.valid, v.expected = valid, expected
	return v
}

// as formats the field in another way than fmt.Sprint.
func (v *Value) as(format func() string) *Value {
	v.format = format
	return v
}

// String returns the value as Set reads it.
func (v *Value) String() string { return v.format() }

// Type returns the placeholder of the value in the help text.
func (v *Value) Type() string { return v.kind }

// expect is the error of a value that cannot be read; FlagError adds the value.
func expect(what string) error { return fmt.Errorf("expected %s", what) }

// scalar is one value. expected is what parse accepts, as in "expected true or false".
func scalar[T any](target *T, kind, expected string, parse func(string) (T, error)) *Value {
	return &Value{kind: kind, format: func() string { return fmt.Sprint(*target) }, set: func(text string, _ bool) error {
		got, err := parse(text)
		if err != nil {
			return expect(expected)
		}
		*target = got
		return nil
	}}
}

// list is several values, separated by commas (or line ends, as in a file).
func list[T any](target *[]T, kind, expected string, parse func(string) (T, error)) *Value {
	set := func(text string, add bool) error {
		var got []T
		for _, part := range split(text) {
			one, err := parse(part)
			if err != nil {
				return expect(expected)
			}
			got = append(got, one)
		}
		if add {
			got = append(*target, got...)
		}
		*target = got
		return nil
	}
	return &Value{kind: kind, set: set, format: func() string {
		texts := make([]string, len(*target))
		for i, v := range *target {
			texts[i] = fmt.Sprint(v)
		}
		return strings.Join(texts, ",")
	}}
}

// split returns the parts of a list that are not empty.
func split(text string) []string {
	var out []string
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' }) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func asIs(s string) string { return s }

func anyText(s string) (string, error) { return s, nil }

// Text accepts any text; kind stands for it in the help text.
func Text(target *string, kind string) *Value { return scalar(target, kind, "text", anyText) }

// Texts accepts a list of texts; kind stands for it in the help text.
func Texts(target *[]string, kind string) *Value {
	return list(target, kind, "texts separated by commas", anyText)
}

// Path accepts a path, relative ones included.
func Path(target *string) *Value { return Text(target, "path") }

// Choice accepts one of a fixed set of values.
func Choice(target *string, choices ...string) *Value { return chosen(target, asIs, choices) }

// chosen accepts the choices in the spelling that normalize returns.
func chosen(target *string, normalize func(string) string, choices []string) *Value {
	return scalar(target, strings.Join(choices, "|"), "one of "+strings.Join(choices, ", "), func(s string) (string, error) {
		if s = normalize(s); !slices.Contains(choices, s) {
			return "", strconv.ErrSyntax
		}
		return s, nil
	})
}

// boolKind is the kind of Bool, by which Register recognizes it.
const boolKind = "bool"

// Bool accepts true or false; the flag alone stands for true.
func Bool(target *bool) *Value {
	return scalar(target, boolKind, "true or false", strconv.ParseBool)
}

// Duration accepts a duration with its unit.
func Duration(target *time.Duration) *Value {
	return scalar(target, "duration", "a duration with its unit, such as 500ms, 30s or 10m", time.ParseDuration)
}

// Delay accepts a duration of 0s or more.
func Delay(target *time.Duration) *Value {
	return Duration(target).must(func() bool { return *target >= 0 }, "0s or more")
}

// Timeout accepts a duration of more than 0s.
func Timeout(target *time.Duration) *Value {
	return Duration(target).must(func() bool { return *target > 0 }, "more than 0s")
}

// Count accepts a whole number. bounds are the least and the greatest allowed one, none of them, or
// the least alone.
func Count(target *int, bounds ...int) *Value {
	v := scalar(target, "count", "a whole number", strconv.Atoi)
	switch len(bounds) {
	case 1:
		v.must(func() bool { return *target >= bounds[0] }, fmt.Sprintf("%d or more", bounds[0]))
	case 2:
		v.must(func() bool { return bounds[0] <= *target && *target <= bounds[1] }, fmt.Sprintf("%d to %d", bounds[0], bounds[1]))
	}
	return v
}

// auto is the text of a CountOrAuto of 0.
const auto = "auto"

// CountOrAuto accepts a whole number of 1 or more, or auto, which is 0.
func CountOrAuto(target *int) *Value {
	return scalar(target, auto+"|count", "auto, or a whole number of 1 or more", func(s string) (int, error) {
		if s == auto {
			return 0, nil
		}
		n, err := strconv.Atoi(s)
		if err == nil && n < 1 {
			err = strconv.ErrRange
		}
		return n, err
	}).as(func() string {
		if *target == 0 {
			return auto
		}
		return strconv.Itoa(*target)
	}).must(func() bool { return *target >= 0 }, "auto, or 1 or more")
}

// IDs accepts a list of numeric user or group IDs.
func IDs(target *[]int, kind, expected string) *Value {
	return list(target, kind, expected, func(s string) (int, error) {
		// 31 bits: the syscalls that accept an ID have no more.
		id, err := strconv.ParseUint(s, 10, 31)
		return int(id), err
	})
}

// Mode accepts permission bits in octal, as chmod does, at least one of them.
func Mode(target *fs.FileMode) *Value {
	const expected = "octal permission bits from 0001 to 0777, such as 0660"
	return scalar(target, "mode", expected, func(s string) (fs.FileMode, error) {
		bits, err := strconv.ParseUint(s, 8, 32)
		return fs.FileMode(bits), err
	}).as(func() string { return fmt.Sprintf("%04o", uint32(*target)) }).
		must(func() bool { return *target != 0 && *target&^fs.ModePerm == 0 }, expected)
}

// Address accepts an IP address, or nothing for none.
func Address(target *netip.Addr, expected string) *Value {
	return optional(target, "address", expected, netip.ParseAddr)
}

// HostAddress accepts an address of a family that a host can have, or nothing for none.
func HostAddress(target *netip.Addr, ofFamily func(netip.Addr) bool, expected string) *Value {
	return Address(target, expected).must(func() bool {
		a := *target
		return !a.IsValid() || ofFamily(a) && !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == ""
	}, expected)
}

// Prefix accepts an IP prefix of a family, or nothing for none.
func Prefix(target *netip.Prefix, ofFamily func(netip.Addr) bool, expected string) *Value {
	return optional(target, "prefix", expected, netip.ParsePrefix).
		must(func() bool { return !target.IsValid() || ofFamily(target.Addr()) }, expected)
}

// optional reads empty text as the zero value: a ConfigMap has its keys whether they are used or
// not.
func optional[T interface {
	fmt.Stringer
	IsValid() bool
}](target *T, kind, expected string, parse func(string) (T, error)) *Value {
	return scalar(target, kind, expected, func(s string) (v T, err error) {
		if s != "" {
			v, err = parse(s)
		}
		return v, err
	}).as(func() string {
		if !(*target).IsValid() {
			return ""
		}
		return (*target).String()
	})
}

// Addresses accepts a list of IP addresses and prefixes; an address is a prefix of full length.
func Addresses(target *[]netip.Prefix) *Value {
	const expected = "IP addresses and prefixes without host bits, such as 10.0.0.1 or fd00::/120, separated by commas"
	return list(target, "addresses", expected, parseAddresses)
}

// parseAddresses accepts an address without a zone, or a prefix whose host bits are zero: another one
// could be meant as an address with the length of its subnet.
func parseAddresses(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && (p != p.Masked() || p.Addr().Is4In6()) {
		err = errors.New("host bits, or a prefix of IPv4 addresses in IPv6 form")
	}
	return p, err
}

// Pools accepts a list of name=network, each name once. It has no default but the empty one.
func Pools(target *map[string]string) *Value {
	set := func(text string, _ bool) error {
		for _, part := range split(text) {
			name, network, ok := strings.Cut(part, "=")
			if !ok || name == "" || network == "" {
				return expect("name=network, such as blue=blue-network")
			}
			if _, twice := (*target)[name]; twice {
				return expect("each pool once; pool " + name + " is there already")
			}
			if *target == nil {
				*target = map[string]string{}
			}
			(*target)[name] = network
		}
		return nil
	}
	return &Value{kind: "name=network", set: set, format: func() string {
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(*target)) {
			texts = append(texts, name+"="+(*target)[name])
		}
		return strings.Join(texts, ",")
	}}
}
