package lostnodes

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
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
		"dots in the name": {[]string{"ns/web.example"}, []string{"ns/web.example"}, ""},
		"backwards":        {[]string{"a-2..1"}, nil, "FIRST..LAST"},
		"too many":         {[]string{"a-0..99999"}, nil, "at most 65536"},
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
	want := List{Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Targets: Targets("a", []string{"router"}, []string{"pods"}, 1)}
	check.Must(t, want.Write(file))
	got, err := Read(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	_, err = Read(file + ".none")
	check.Error(t, err, "no such file")
	for text, want := range map[string]string{"": "EOF", `{"nodes":[]}`: "unknown field"} {
		check.Must(t, os.WriteFile(file, []byte(text), 0o600))
		_, err = Read(file)
		check.Error(t, err, file, want)
	}
}

func TestTargets(t *testing.T) {
	var got []string
	for _, target := range Targets("a", []string{"router", "health"}, []string{"pods", "blue"}, 1) {
		check.Equal(t, "node", target.Node, "a")
		got = append(got, target.Network+" "+target.Owner+" "+strings.TrimPrefix(target.ContainerID, containerid.For(target.Owner, "a", target.Network)))
	}
	check.Equal(t, "targets", got, []string{
		"pods router ", "pods router -g1", "pods health ", "pods health -g1", "blue router ", "blue router -g1", "blue health ", "blue health -g1",
	})
}

func TestOutcome(t *testing.T) {
	var l List
	for _, text := range []string{"done released", "done released", "failed released", "failed failed", "begun released", "begun not-tried", "late not-tried"} {
		node, state, _ := strings.Cut(text, " ")
		l.Targets = append(l.Targets, Target{Node: node, State: State(state), Error: "error of " + node})
	}
	released, failed := l.outcome()
	check.Equal(t, "released", released, []string{"done"})
	check.Equal(t, "failed", failed, map[string]string{"failed": "error of failed"})
}
