package lostnodes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// fakeCluster has Nodes, the pools of CiliumNodes and a history.
type fakeCluster struct {
	nodes  []string
	pools  map[string]NodePool
	stored History
	writes int
	// failNodes is the error of a list of Nodes, failStore of the store of the history.
	failNodes, failStore error
}

func (f *fakeCluster) Pools(context.Context) (map[string]NodePool, error) { return f.pools, nil }

func (f *fakeCluster) NodeUIDs(context.Context) (map[string]string, error) {
	uids := map[string]string{}
	for _, name := range f.nodes {
		uids[name] = "uid-" + name
	}
	return uids, f.failNodes
}

func (f *fakeCluster) update(_ context.Context, change func(History) History) (History, error) {
	if f.failStore != nil {
		return nil, f.failStore
	}
	after := change(f.stored)
	if !maps.Equal(after, f.stored) {
		f.writes++
	}
	f.stored = after
	return after, nil
}

func newTracker(f *fakeCluster, now time.Time) Tracker {
	return Tracker{Networks: []string{"pods"}, Cluster: f, UpdateHistory: f.update, MaxGap: 59 * time.Minute, Grace: time.Hour, MaxNodes: 5, Now: func() time.Time { return now }}
}

// reportOf returns the report of nodes of which everything was released.
func reportOf(nodes ...string) (l List) {
	for _, node := range nodes {
		l.Targets = append(l.Targets, Target{Node: node, State: Released})
	}
	return l
}

// wantLost looks at a time and checks the targets: node and owner.
func wantLost(t *testing.T, f *fakeCluster, now time.Time, want ...string) {
	t.Helper()
	list, err := newTracker(f, now).Lost(t.Context())
	var got []string
	for _, target := range list.Targets {
		got = append(got, target.Node+" "+target.Owner)
	}
	if err != nil || !list.Time.Equal(now) || !slices.Equal(got, want) {
		t.Errorf("at %s: lists %q, %v, of %s; want %q", now, got, err, list.Time, want)
	}
}

// A node is listed once it has been absent for the grace period, with the slots of its last pool, until
// it is forgotten.
func TestTracker(t *testing.T) {
	f := &fakeCluster{nodes: []string{"a", "b"}, pools: map[string]NodePool{"a": {Slots: 2}, "b": {}}}
	wantLost(t, f, noon)
	delete(f.pools, "a")
	f.nodes = []string{"b"}
	for _, minutes := range []int{10, 20, 69} {
		wantLost(t, f, noon.Add(time.Duration(minutes)*time.Minute))
	}
	writes := f.writes
	now := noon.Add(70 * time.Minute)
	for range 2 {
		wantLost(t, f, now, "a ciliumnode-0", "a ciliumnode-1")
	}
	check.Equal(t, "writes", f.writes, writes+1)
	if err := newTracker(f, now).Forget(t.Context(), reportOf("a")); err != nil {
		t.Error(err)
	}
	check.Equal(t, "history", f.stored, (History{"b": {UID: "uid-b"}}))
}

// The oldest lost nodes are listed, with the owners of each node and some more slots than the last pool had.
func TestLimits(t *testing.T) {
	f := &fakeCluster{stored: History{"new": entry(0, noon, later), "old": entry(MaxSlots+9, noon.Add(-time.Hour), later)}, nodes: []string{"here"}}
	tracker := newTracker(f, later)
	tracker.Grace, tracker.ExtraSlots, tracker.Owners, tracker.MaxNodes = time.Minute, 2, []string{"router"}, 1
	list, err := tracker.Lost(t.Context())
	check.Must(t, err)
	last := list.Targets[len(list.Targets)-1]
	check.Equal(t, "targets", len(list.Targets), 1+MaxSlots+2)
	check.Equal(t, "the last one", last.Node+" "+last.Owner, "old ciliumnode-1025")
}

// A node that returned after it was listed stays in the history.
func TestForgetCameBack(t *testing.T) {
	f := &fakeCluster{nodes: []string{"a", "b"}}
	wantLost(t, f, noon)
	f.nodes = []string{"b"}
	wantLost(t, f, later)
	f.nodes = []string{"a", "b"}
	if err := newTracker(f, later).Forget(t.Context(), reportOf("a")); err != nil {
		t.Error(err)
	}
	if _, ok := f.stored["a"]; !ok {
		t.Errorf("the history has %v; want a in it", f.stored)
	}
}

func TestForgetFailed(t *testing.T) {
	f := &fakeCluster{nodes: []string{"a", "b", "c"}}
	wantLost(t, f, noon)
	f.nodes = []string{"c"}
	report := reportOf("a")
	report.Targets = append(report.Targets, Target{Node: "b", State: Failed, Error: "the store is locked"})
	err := newTracker(f, later).Forget(t.Context(), report)
	if err == nil || !strings.Contains(err.Error(), "node b could not be reclaimed, and is tried again in the next run: the store is locked") {
		t.Errorf("got %v; want the failure", err)
	}
	if _, ok := f.stored["a"]; ok || len(f.stored) != 2 {
		t.Errorf("the history has %v; want b and c", f.stored)
	}
}

// A Node may have existed in a gap between two looks.
func TestGap(t *testing.T) {
	f := &fakeCluster{nodes: []string{"a", "b"}, pools: map[string]NodePool{"a": {Slots: 1, NodeUID: "uid-a"}}}
	wantLost(t, f, noon)
	f.nodes = []string{"b"}
	wantLost(t, f, later)
	for _, minutes := range []int{120, 150, 179} {
		wantLost(t, f, later.Add(time.Duration(minutes)*time.Minute))
	}
	wantLost(t, f, later.Add(3*time.Hour), "a ciliumnode-0") // after an hour of looks
}

// A daemon can have the name of its machine, and live.
func TestNeverANode(t *testing.T) {
	f := &fakeCluster{nodes: []string{"b"}, pools: map[string]NodePool{"a": {Slots: 1}}}
	for i := range 20 {
		wantLost(t, f, noon.Add(time.Duration(i)*10*time.Minute))
	}
}

// A failed read is not evidence that nodes are lost.
func TestTrackerErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeCluster)
		want   string
	}{
		"no Node":     {func(f *fakeCluster) { f.nodes = nil }, "lists no Node"},
		"half a list": {func(f *fakeCluster) { f.nodes, f.failNodes = nil, errors.New("refused") }, "refused"},
		"no history":  {func(f *fakeCluster) { f.failStore = errors.New("refused") }, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeCluster{nodes: []string{"a"}}
			wantLost(t, f, noon)
			c.change(f)
			before := maps.Clone(f.stored)
			_, err := newTracker(f, later).Lost(t.Context())
			forget := newTracker(f, later).Forget(t.Context(), reportOf("a"))
			for _, err := range []error{err, forget} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v; want %q", err, c.want)
				}
			}
			check.Equal(t, "history", f.stored, before)
		})
	}
}
