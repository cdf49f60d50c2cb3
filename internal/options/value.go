package options

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// scalar is a Value whose error names the expected values.
type scalar[T any] struct {
	target *T
	// kind stands for the value in the help text.
	kind string
	// expected is what parse accepts, as in "expected true or false".
	expected string
	parse    func(string) (T, error)
	// format is the inverse of parse.
	format func(T) string
}

// Set reads the value from text.
func (v *scalar[T]) Set(text string) error {
	got, err := v.parse(text)
	if err != nil {
		return expect(v.expected)
	}
	*v.target = got
	return nil
}

func (v *scalar[T]) setDefault(text string) error {
	if text == "" {
		var zero T
		*v.target = zero
		return nil
	}
	return v.Set(text)
}

// String returns the value as Set reads it.
func (v *scalar[T]) String() string { return v.format(*v.target) }

// Type returns the placeholder of the value in the help text.
func (v *scalar[T]) Type() string { return v.kind }

// expect is the error of a value that cannot be read; InvalidValue adds the value.
func expect(what string) error { return fmt.Errorf("expected %s", what) }

// Text accepts any text; kind stands for it in the help text.
func Text(target *string, kind string) Value { return text(target, kind) }

func text(target *string, kind string) *scalar[string] {
	return &scalar[string]{
		target: target, kind: kind, expected: "text",
		parse:  func(s string) (string, error) { return s, nil },
		format: func(s string) string { return s },
	}
}

// pathValue is a Value that holds paths.
type pathValue interface {
	// makeAbsolute makes the paths independent of the working directory; empty ones stay empty.
	makeAbsolute() error
}

// path is a path of the file system.
type path struct{ *scalar[string] }

// Path accepts a path, relative ones included.
func Path(target *string) Value { return path{text(target, "path")} }

func (p path) makeAbsolute() error { return makeAbsolute(p.target) }

func makeAbsolute(p *string) error {
	if *p == "" {
		return nil
	}
	abs, err := filepath.Abs(*p)
	if err != nil {
		return fmt.Errorf("path %q: %w", *p, err)
	}
	*p = abs
	return nil
}

// boolKind is the kind of Bool, by which Register recognizes it.
const boolKind = "bool"

// Bool accepts true or false; the flag alone stands for true.
func Bool(target *bool) Value {
	return &scalar[bool]{target: target, kind: boolKind, expected: "true or false", parse: strconv.ParseBool, format: strconv.FormatBool}
}

// Duration accepts a duration with its unit.
func Duration(target *time.Duration) Value {
	return &scalar[time.Duration]{
		target: target, kind: "duration", expected: "a duration with its unit, such as 500ms, 30s or 10m",
		parse: time.ParseDuration, format: time.Duration.String,
	}
}

// Count accepts a whole number.
func Count(target *int) Value {
	return &scalar[int]{target: target, kind: "count", expected: "a whole number", parse: strconv.Atoi, format: strconv.Itoa}
}

// Mode accepts permission bits in octal, as chmod does.
func Mode(target *fs.FileMode) Value {
	return &scalar[fs.FileMode]{
		target: target, kind: "mode", expected: "octal permission bits from 0000 to 0777, such as 0660",
		parse: func(s string) (fs.FileMode, error) {
			bits, err := strconv.ParseUint(s, 8, 32)
			if err == nil && bits > uint64(fs.ModePerm) {
				err = strconv.ErrRange
			}
			return fs.FileMode(bits), err
		},
		format: func(m fs.FileMode) string { return fmt.Sprintf("%04o", uint32(m)) },
	}
}

// Choice accepts one of a fixed set of values.
func Choice(target *string, choices ...string) Value { return chosen(target, nil, choices) }

// chosen accepts the choices, in the spelling that normalize returns; nil for as they are.
func chosen(target *string, normalize func(string) string, choices []string) *scalar[string] {
	v := text(target, strings.Join(choices, "|"))
	v.expected = "one of " + strings.Join(choices, ", ")
	v.parse = func(s string) (string, error) {
		if normalize != nil {
			s = normalize(s)
		}
		for _, c := range choices {
			if s == c {
				return c, nil
			}
		}
		return "", strconv.ErrSyntax
	}
	return v
}
