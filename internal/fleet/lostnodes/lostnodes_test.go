package lostnodes

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestExpand(t *testing.T) {
	for name, c := range map[string]struct {
		texts []string
		want  []string
		err   string
	}{
		"none":             {nil, nil, ""},
		"names":            {[]string{"router", "default/web-0"}, []string{"router", "default/web-0"}, ""},
		"numbers":          {[]string{"ciliumnode-8..11"}, []string{"ciliumnode-8", "ciliumnode-9", "ciliumnode-10", "ciliumnode-11"}, ""},
		"one number":       {[]string{"ciliumnode-0..0"}, []string{"ciliumnode-0"}, ""},
		"each once":        {[]string{"a-1", "a-0..1", "a-1"}, []string{"a-1", "a-0"}, ""},
		"dots in the name": {[]string{"ns/web.example"}, []string{"ns/web.example"}, ""},
		"empty":            {[]string{""}, nil, `owner ""`},
		"backwards":        {[]string{"a-2..1"}, nil, "FIRST..LAST"},
		"too many":         {[]string{"a-0..99999"}, nil, "at most 65536"},
		"too many in all":  {[]string{"a-0..40000", "b-0..40000"}, nil, "more than 65536"},
		"overflow":         {[]string{"a-0..99999999999999999999"}, nil, "FIRST..LAST"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Expand(c.texts)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got the error %v; want %q", err, c.err)
			}
			if err == nil && !slices.Equal(got, c.want) {
				t.Errorf("got %q; want %q", got, c.want)
			}
		})
	}
}

func TestReadWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.json")
	want := List{Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Nodes: []Node{
		{Name: "a", AbsentSince: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), Owners: []string{"router", "ciliumnode-0..7"}},
	}}
	check.Must(t, Write(file, want))
	got, err := Read[List](file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := Read[Report](file); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "unknown field") {
		t.Errorf("a list as a report: %v", err)
	}
	if _, err := Read[List](file + ".none"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
	check.Must(t, os.WriteFile(file, nil, 0o600))
	if _, err := Read[List](file); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("an empty file: %v", err)
	}
}
