package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// texts are the fields that the list of shipped profiles omits.
var texts = []string{"type", "lost", "delNotHeld", "requires", "dangers", "tryUnsafe", "sources"}

// profiles returns the list of the shipped profiles. Each field of a profile must have a row on
// the page.
func profiles(page string) (map[string]string, error) {
	set, err := profile.Load()
	if err != nil {
		return nil, err
	}
	var names []string
	for f := range reflect.TypeFor[profile.Profile]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.Contains(page, "\n| `"+name+"`") && !strings.Contains(page, ", `"+name+"` |") {
			return nil, fmt.Errorf("no row for the field %s", name)
		}
		if !slices.Contains(texts, name) {
			names = append(names, name)
		}
	}
	unknown, err := fields(set["unknown"])
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| plugin | fields |\n|---|---|\n| `unknown` | %s |\n", row(names, unknown, nil))
	plugins := map[string][]string{} // by their row
	for _, name := range slices.Sorted(maps.Keys(set)) {
		of, err := fields(set[name])
		if err != nil {
			return nil, err
		}
		if name != "unknown" {
			differences := row(names, of, unknown)
			plugins[differences] = append(plugins[differences], "`"+name+"`")
		}
	}
	for _, differences := range slices.SortedFunc(maps.Keys(plugins), func(x, y string) int { return slices.Compare(plugins[x], plugins[y]) }) {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(plugins[differences], ", "), differences)
	}
	return map[string]string{"profiles": b.String()}, nil
}

// row returns the fields that differ from those of another profile.
func row(names []string, of, from map[string]string) string {
	var all []string
	for _, name := range names {
		if of[name] != from[name] {
			all = append(all, fmt.Sprintf("`%s` %s", name, cmp.Or(of[name], "none")))
		}
	}
	return strings.Join(all, ", ")
}

// fields returns the values of a profile by the name of the field.
func fields(p profile.Profile) (map[string]string, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for name, value := range values {
		if list, ok := value.([]any); ok {
			value = strings.Trim(fmt.Sprint(list), "[]")
		}
		all[name] = fmt.Sprint(value)
	}
	return all, nil
}

// dangers returns the dangers and the required files of each plugin that has a part on the page.
func dangers(page string) (map[string]string, error) {
	set, err := profile.Load()
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for name, p := range set {
		if len(p.Dangers) == 0 || !strings.Contains(page, mark(name)) {
			continue
		}
		var b strings.Builder
		for _, d := range p.Dangers {
			b.WriteString(wrap(d, "- ", "  "))
		}
		for _, r := range p.Requires {
			b.WriteString("\n" + wrap(fmt.Sprintf("Required %s: `%s`; %s.", r.Kind, strings.Join(r.Paths, "` or `"), r.Why), "", ""))
		}
		all[name] = b.String()
	}
	return all, nil
}
