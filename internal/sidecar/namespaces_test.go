package sidecar

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

type fakeLeases map[string]engine.Attachment

func (f fakeLeases) All() iter.Seq[engine.Attachment] { return maps.Values(f) }

func (f fakeLeases) ReleaseContainer(_ context.Context, k protocol.Key, _ time.Time) error {
	delete(f, k.Owner)
	return nil
}

// container returns a held container interface with a network namespace.
func container(owner, netns string) record.Record {
	return record.Record{Owner: owner, State: record.Held, Invocations: []call.Invocation{{NetNS: netns}}}
}

// Each container of a case is its name, and where its namespace is: "dir" is the runtime's directory.
func TestMissingNamespace(t *testing.T) {
	const grace = time.Minute
	for name, c := range map[string]struct {
		loaded, added map[string]string // container interfaces by owner
		exist         []string
		state         record.State
		released      string
	}{
		"missing":                          {loaded: map[string]string{"cni/a/eth0": "dir/a"}, added: map[string]string{"cni/b/eth0": "dir/b"}, exist: []string{"dir/b"}, released: "cni/a/eth0"},
		"added since the start":            {added: map[string]string{"cni/a/eth0": "dir/a", "cni/b/eth0": "dir/b"}, exist: []string{"dir/b"}, released: "cni/a/eth0"},
		"all exist":                        {loaded: map[string]string{"cni/a/eth0": "dir/a"}, added: map[string]string{"cni/b/eth0": "dir/b"}, exist: []string{"dir/a", "dir/b"}},
		"none added since the start":       {loaded: map[string]string{"cni/a/eth0": "dir/a", "cni/b/eth0": "dir/b"}, exist: []string{"dir/b"}},
		"the directory cannot be seen":     {loaded: map[string]string{"cni/a/eth0": "dir/a"}, added: map[string]string{"cni/b/eth0": "dir/b"}},
		"proven in another directory":      {loaded: map[string]string{"cni/a/eth0": "other/a"}, added: map[string]string{"cni/b/eth0": "dir/b"}, exist: []string{"dir/b"}},
		"the sidecar's own, not a runtime": {loaded: map[string]string{"cni/a/eth0": "dir/own"}, added: map[string]string{"cni/b/eth0": "dir/b"}, exist: []string{"dir/b"}},
		"not a container":                  {loaded: map[string]string{"router": "dir/a"}, added: map[string]string{"cni/b/eth0": "dir/b"}, exist: []string{"dir/b"}},
		"not held":                         {loaded: map[string]string{"cni/a/eth0": "dir/a"}, added: map[string]string{"cni/b/eth0": "dir/b"}, exist: []string{"dir/b"}, state: record.Releasing},
	} {
		t.Run(name, func(t *testing.T) {
			root, leases, start := t.TempDir(), fakeLeases{}, []record.Record(nil)
			for _, dir := range []string{"dir", "other"} {
				check.Must(t, os.Mkdir(filepath.Join(root, dir), 0o755))
			}
			for owner, path := range c.loaded {
				r := container(owner, filepath.Join(root, path))
				r.State = cmp.Or(c.state, r.State)
				start = append(start, r)
				leases[owner] = engine.Attachment{Record: r}
			}
			for owner, path := range c.added {
				leases[owner] = engine.Attachment{Record: container(owner, filepath.Join(root, path))}
			}
			for _, path := range c.exist {
				check.Must(t, os.WriteFile(filepath.Join(root, path), nil, 0o600))
			}
			all := slices.Collect(maps.Keys(leases))
			n := &namespaces{engine: leases, grace: grace, log: logrus.New(), own: filepath.Join(root, "dir/own"), loaded: loadedContainers(start)}
			now := time.Now()
			n.sweep(t.Context(), now)
			n.sweep(t.Context(), now.Add(grace-1))
			if len(leases) != len(all) {
				t.Fatalf("%v are left of %v before the end of the grace time", slices.Collect(maps.Keys(leases)), all)
			}
			n.sweep(t.Context(), now.Add(grace))
			released := slices.DeleteFunc(all, func(owner string) bool { _, ok := leases[owner]; return ok })
			check.Equal(t, "released", strings.Join(released, " "), c.released)
		})
	}
}

// A namespace that is seen again, or a directory that is no longer proven, begins the time anew.
func TestMissingNamespaceSeenAgain(t *testing.T) {
	dir, leases := t.TempDir(), fakeLeases{}
	for _, id := range []string{"a", "b"} {
		owner := "cni/" + id + "/eth0"
		leases[owner] = engine.Attachment{Record: container(owner, filepath.Join(dir, id))}
	}
	n := &namespaces{engine: leases, grace: time.Minute, log: logrus.New()}
	now := time.Now()
	for i, exist := range [][]string{{"b"}, {"a", "b"}, {"b"}, {}, {"b"}} {
		for _, id := range []string{"a", "b"} {
			path := filepath.Join(dir, id)
			check.Must(t, os.RemoveAll(path))
			if slices.Contains(exist, id) {
				check.Must(t, os.WriteFile(path, nil, 0o600))
			}
		}
		n.sweep(t.Context(), now.Add(time.Duration(i)*time.Minute))
	}
	check.True(t, len(leases) == 2, "%v are left, want both", slices.Collect(maps.Keys(leases)))
}
