package lostnodes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

type fakeStore struct {
	ids map[string]bool
	err error
}

func (s *fakeStore) ContainerIDs(context.Context) (map[string]bool, error) { return s.ids, s.err }

// idsOf returns container IDs of a node in the network "pods".
func idsOf(node string, owners ...string) map[string]bool {
	ids := map[string]bool{}
	for _, owner := range owners {
		ids[containerid.For(owner, node, "pods")] = true
	}
	return ids
}

// lostTracker returns a tracker of a cluster with the node "here" that has lost "a" and "b", with this
// store.
func lostTracker(t *testing.T, ids ...map[string]bool) (Tracker, *fakeCluster, *fakeStore) {
	t.Helper()
	f := &fakeCluster{nodes: []string{"here", "a", "b"}}
	wantLost(t, f, noon)
	f.nodes = []string{"here"}
	wantLost(t, f, noon)
	s := &fakeStore{ids: map[string]bool{}}
	for _, more := range ids {
		maps.Copy(s.ids, more)
	}
	wantLost(t, f, noon.Add(time.Hour/2))
	tracker := newTracker(f, noon.Add(time.Hour))
	tracker.ContainerIDs, tracker.Networks, tracker.Owners = s.ContainerIDs, []string{"blue", "pods"}, []string{"router"}
	return tracker, f, s
}

func wantRemembered(t *testing.T, f *fakeCluster, want ...string) {
	t.Helper()
	check.Equal(t, "remembered nodes", slices.Sorted(maps.Keys(f.stored)), want)
}

// Only reservations in the store are listed, also beyond the last pool and with a suffix, and a node
// without any is forgotten.
func TestLostInStore(t *testing.T) {
	renamed := containerid.Generation(containerid.For("ciliumnode-900", "a", "pods"), 2)
	tracker, f, _ := lostTracker(t, idsOf("here", "router"), idsOf("a", "router", "ciliumnode-3", "unknown"), map[string]bool{renamed: true, "pod": true})
	list, err := tracker.Lost(t.Context())
	check.Must(t, err)
	want := Targets("a", []string{"router", "ciliumnode-3"}, []string{"pods"}, 0)
	want = append(want, Target{Node: "a", Owner: "ciliumnode-900", Network: "pods", ContainerID: renamed})
	check.Equal(t, "targets", list.Targets, want)
	wantRemembered(t, f, "a", "here")
}

// A node that is absent for less than the grace period may still allocate.
func TestLostGraceInStore(t *testing.T) {
	tracker, f, _ := lostTracker(t)
	tracker.Now = func() time.Time { return noon.Add(time.Minute) }
	if list, err := tracker.Lost(t.Context()); err != nil || len(list.Targets) > 0 {
		t.Errorf("got %v, %v; want no node", list, err)
	}
	wantRemembered(t, f, "a", "b", "here")
}

// A store that cannot be the one of the daemons is not evidence that nodes have no reservation.
func TestStoreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Tracker, *fakeStore)
		want   string
	}{
		"unreadable": {func(_ *Tracker, s *fakeStore) { s.err = errors.New("refused") }, "refused"},
		"another store": {func(t *Tracker, s *fakeStore) {
			s.ids = map[string]bool{"pod": true}
			t.Cluster.(*fakeCluster).pools = map[string]NodePool{"here": {Slots: 1}}
		}, "by --whereabouts-namespace"},
		"another network": {func(t *Tracker, _ *fakeStore) { t.Networks = []string{"other"} }, "by --cni-networks"},
	} {
		t.Run(name, func(t *testing.T) {
			tracker, f, s := lostTracker(t, idsOf("here", "router"), idsOf("a", "router"))
			c.change(&tracker, s)
			if _, err := tracker.Lost(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q", err, c.want)
			}
			wantRemembered(t, f, "a", "b", "here")
		})
	}
}

// A DEL that reports success and releases nothing is noticed.
func TestForgetInStore(t *testing.T) {
	tracker, f, s := lostTracker(t, idsOf("here", "router"), idsOf("a", "router", "ciliumnode-3"))
	report := reportOf("a", "b")
	err := tracker.Forget(t.Context(), report)
	if err == nil || !strings.Contains(err.Error(), "node a: each DEL has succeeded, but the plugin's store still has 2 addresses, such as that of "+containerid.For("router", "a", "pods")) {
		t.Errorf("got %v; want what remains", err)
	}
	wantRemembered(t, f, "a", "here")
	s.ids = idsOf("here", "router")
	if err := tracker.Forget(t.Context(), report); err != nil {
		t.Error(err)
	}
	wantRemembered(t, f, "here")
}
