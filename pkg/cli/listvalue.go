package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// listValue is a pflag.Value for several values: separated by commas (or, as in
// a file, by line ends), and repeatable. The first that is set replaces the default.
type listValue[T any] struct {
	target *[]T
	// kind and takes are as in value.
	kind, takes string
	parse       func(string) (T, error)
	set         bool
}

// Set adds the values that text holds.
func (l *listValue[T]) Set(text string) error {
	var got []T
	for _, part := range parts(text) {
		v, err := l.parse(part)
		if err != nil {
			return option.Expected(l.takes)
		}
		got = append(got, v)
	}
	if !l.set {
		*l.target = nil
	}
	l.set = true
	*l.target = append(*l.target, got...)
	return nil
}

// String is the present list as Set would read it.
func (l *listValue[T]) String() string {
	texts := make([]string, len(*l.target))
	for i, v := range *l.target {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ",")
}

// Type stands for the value in the help text.
func (l *listValue[T]) Type() string { return l.kind }

func textsValue(target *[]string, kind string) *listValue[string] {
	return &listValue[string]{
		target: target, kind: kind, takes: "texts separated by commas",
		parse: func(s string) (string, error) { return s, nil },
	}
}

func idsValue(target *[]int, kind, takes string) *listValue[int] {
	return &listValue[int]{target: target, kind: kind, takes: takes, parse: func(s string) (int, error) {
		// 31 bits: an ID above does not fit where the kernel's callers keep it.
		id, err := strconv.ParseUint(s, 10, 31)
		return int(id), err
	}}
}

// poolsValue is a pflag.Value for name=network, in lists as listValue has them.
type poolsValue struct{ target *map[string]string }

// Set adds the pools that text holds.
func (p poolsValue) Set(text string) error {
	for _, part := range parts(text) {
		name, network, ok := strings.Cut(part, "=")
		if !ok || name == "" || network == "" {
			return option.Expected("name=network, such as blue=blue-network")
		}
		if _, twice := (*p.target)[name]; twice {
			return option.Expected("each pool once; pool " + name + " is there already")
		}
		if *p.target == nil {
			*p.target = map[string]string{}
		}
		(*p.target)[name] = network
	}
	return nil
}

// String is the present map as Set would read it, sorted by name.
func (p poolsValue) String() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(*p.target)) {
		texts = append(texts, name+"="+(*p.target)[name])
	}
	return strings.Join(texts, ",")
}

// Type stands for the value in the help text.
func (p poolsValue) Type() string { return "name=network" }

// parts splits a list and leaves out what is empty.
func parts(text string) []string {
	var out []string
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' }) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
