package options

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// list is a Value of several values: separated by commas (or line ends, as in a file) and
// repeatable as a flag. The first Set replaces the default.
type list[T any] struct {
	target *[]T
	// kind and expected are as in scalar.
	kind, expected string
	parse          func(string) (T, error)
	set            bool
}

// Set adds the values in text.
func (l *list[T]) Set(text string) error {
	got, err := l.read(text)
	if err != nil {
		return err
	}
	if !l.set {
		*l.target = nil
	}
	l.set = true
	*l.target = append(*l.target, got...)
	return nil
}

func (l *list[T]) setDefault(text string) error {
	got, err := l.read(text)
	*l.target = got
	return err
}

func (l *list[T]) read(text string) ([]T, error) {
	var got []T
	for _, part := range split(text) {
		v, err := l.parse(part)
		if err != nil {
			return nil, expect(l.expected)
		}
		got = append(got, v)
	}
	return got, nil
}

// String returns the list as Set reads it.
func (l *list[T]) String() string {
	texts := make([]string, len(*l.target))
	for i, v := range *l.target {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ",")
}

// Type returns the placeholder of the list in the help text.
func (l *list[T]) Type() string { return l.kind }

// Texts accepts a list of texts; kind stands for it in the help text.
func Texts(target *[]string, kind string) Value { return texts(target, kind) }

func texts(target *[]string, kind string) *list[string] {
	return &list[string]{
		target: target, kind: kind, expected: "texts separated by commas",
		parse: func(s string) (string, error) { return s, nil },
	}
}

// pathList is a list of paths.
type pathList struct{ *list[string] }

// Paths accepts a list of paths, relative ones included; kind stands for it in the help text.
func Paths(target *[]string, kind string) Value { return pathList{texts(target, kind)} }

func (l pathList) makeAbsolute() error {
	all := slices.Clone(*l.target)
	for i := range all {
		if err := makeAbsolute(&all[i]); err != nil {
			return err
		}
	}
	*l.target = all
	return nil
}

// IDs accepts a list of numeric user or group IDs.
func IDs(target *[]int, kind, expected string) Value {
	return &list[int]{target: target, kind: kind, expected: expected, parse: func(s string) (int, error) {
		// 31 bits: the syscalls that accept an ID have no more.
		id, err := strconv.ParseUint(s, 10, 31)
		return int(id), err
	}}
}

// Pools accepts a list of name=network, each name once. It has no default but the empty one.
func Pools(target *map[string]string) Value { return pools{target} }

type pools struct{ target *map[string]string }

// Set adds the pools in text.
func (p pools) Set(text string) error {
	for _, part := range split(text) {
		name, network, ok := strings.Cut(part, "=")
		if !ok || name == "" || network == "" {
			return expect("name=network, such as blue=blue-network")
		}
		if _, twice := (*p.target)[name]; twice {
			return expect("each pool once; pool " + name + " is there already")
		}
		if *p.target == nil {
			*p.target = map[string]string{}
		}
		(*p.target)[name] = network
	}
	return nil
}

func (p pools) setDefault(text string) error { return p.Set(text) }

// String returns the pools as Set reads them, sorted by name.
func (p pools) String() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(*p.target)) {
		texts = append(texts, name+"="+(*p.target)[name])
	}
	return strings.Join(texts, ",")
}

// Type returns the placeholder of the pools in the help text.
func (p pools) Type() string { return "name=network" }

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
