package journal

import (
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// A journal behaves like a map after any sequence of writes, removals and restarts.
func TestJournalModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		must(t, err)
		j, err := Open(dir, Options{})
		must(t, err)
		defer func() { must(t, j.Close()) }()
		model := map[string]record.Record{}
		id := rapid.SampledFrom([]string{"a", "b", "c", "d.e_f-g"})
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				r := sample(id.Draw(rt, "id"))
				r.Generation = rapid.IntRange(0, 9).Draw(rt, "generation")
				r.Node = rapid.String().Draw(rt, "node") + strconv.Itoa(r.Generation)
				must(t, j.Write(r))
				model[r.ContainerID] = r
			},
			"remove": func(rt *rapid.T) {
				containerID := id.Draw(rt, "id")
				remove := rapid.SampledFrom([]func(string) error{j.Remove, j.RemoveSoon}).Draw(rt, "removal")
				must(t, remove(containerID))
				delete(model, containerID)
			},
			"restart": func(*rapid.T) {
				must(t, j.Close())
				j, err = Open(dir, Options{})
				must(t, err)
			},
			"": func(rt *rapid.T) {
				l, err := j.Load()
				must(t, err)
				got := map[string]record.Record{}
				for _, r := range l.Records {
					got[r.ContainerID] = r
				}
				if !reflect.DeepEqual(got, model) || len(l.Problems)+len(l.FutureVersions) != 0 {
					rt.Fatalf("loaded %+v, want %+v", l, model)
				}
				if !slices.IsSortedFunc(l.Records, func(a, b record.Record) int { return strings.Compare(a.ContainerID, b.ContainerID) }) {
					rt.Fatalf("not sorted by container ID: %+v", l.Records)
				}
			},
		})
	})
}
