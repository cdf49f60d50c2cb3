package nodehistory

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/lostnodes"
)

// fakeCluster has Nodes, CiliumNodes and one ConfigMap.
type fakeCluster struct {
	nodes []string
	// pools are the resources in the pools of the CiliumNodes.
	pools  map[string][]string
	stored *corev1.ConfigMap
	writes int
	// failNodes is the error of a list of Nodes.
	failNodes error
	// conflicts is how many updates find a write of another process.
	conflicts int
}

func (f *fakeCluster) CiliumNodes(_ context.Context, begin func() func(*ciliumnode.Node)) error {
	begin()(&ciliumnode.Node{Metadata: metav1.ObjectMeta{Name: "of-an-expired-list"}})
	each := begin()
	for name, pool := range f.pools {
		n := &ciliumnode.Node{Metadata: metav1.ObjectMeta{Name: name}}
		n.Spec.IPAM.Pool = map[string]ciliumnode.AllocationIP{}
		for i, resource := range pool {
			n.Spec.IPAM.Pool[fmt.Sprintf("10.0.0.%d", i)] = ciliumnode.AllocationIP{Resource: resource}
		}
		each(n)
	}
	return nil
}

func (f *fakeCluster) NodeUIDs(_ context.Context, begin func() func(name, uid string)) error {
	begin()("of-an-expired-list", "uid")
	each := begin()
	for _, name := range f.nodes {
		each(name, "uid-"+name)
	}
	return f.failNodes
}

func (f *fakeCluster) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	if f.stored == nil || f.stored.Name != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return f.stored.DeepCopy(), nil
}

func (f *fakeCluster) Update(_ context.Context, m *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	if f.conflicts > 0 {
		f.conflicts--
		f.stored.Data["other"] = `{"uid":"uid-other"}`
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, m.Name, errors.New("modified"))
	}
	f.writes++
	f.stored = m
	return m, nil
}

func newTracker(f *fakeCluster, now time.Time) Tracker {
	if f.stored == nil {
		f.stored = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Data: map[string]string{}}
	}
	return Tracker{Cluster: f, Store: Store{f, "nodes"}, MaxGap: 59 * time.Minute, Now: func() time.Time { return now }}
}

func selection() Selection { return Selection{Grace: time.Hour, Max: 5} }

// mustList returns the lost nodes, each with its owners.
func mustList(t *testing.T, f *fakeCluster, now time.Time) []string {
	t.Helper()
	list, err := newTracker(f, now).Lost(t.Context(), selection())
	if err != nil {
		t.Fatal(err)
	}
	if !list.Time.Equal(now) {
		t.Errorf("the list is of %s; want %s", list.Time, now)
	}
	var got []string
	for _, n := range list.Nodes {
		got = append(got, n.Name+" "+strings.Join(n.Owners, " "))
	}
	return got
}

// A node is listed once it has been absent for the grace period, with the slots of its last pool, until
// it is forgotten.
func TestTracker(t *testing.T) {
	f := &fakeCluster{nodes: []string{"a", "b"}, pools: map[string][]string{
		"a": {"delegated-ipam/ciliumnode-0", "delegated-ipam/ciliumnode-7", "eni-1", "delegated-ipam/ciliumnode-007"}, "b": nil,
	}}
	if got := mustList(t, f, noon); got != nil {
		t.Errorf("lists %q; want none", got)
	}
	delete(f.pools, "a")
	f.nodes = []string{"b"}
	for _, minutes := range []int{10, 20, 69} {
		if got := mustList(t, f, noon.Add(time.Duration(minutes)*time.Minute)); got != nil {
			t.Errorf("after %d minutes: lists %q; want none", minutes, got)
		}
	}
	writes := f.writes
	now := noon.Add(70 * time.Minute)
	for range 2 {
		if got := mustList(t, f, now); !slices.Equal(got, []string{"a ciliumnode-0..7"}) {
			t.Errorf("lists %q; want a with its slots", got)
		}
	}
	if f.writes != writes+1 {
		t.Errorf("the same look was written %d times; want once", f.writes-writes)
	}
	if err := newTracker(f, now).Forget(t.Context(), lostnodes.Report{Reclaimed: []string{"a"}}); err != nil {
		t.Error(err)
	}
	if want := map[string]string{"b": `{"uid":"uid-b"}`}; !reflect.DeepEqual(f.stored.Data, want) {
		t.Errorf("the ConfigMap has %v; want %v", f.stored.Data, want)
	}
}

// A node that returned after it was listed stays in the history.
func TestForgetCameBack(t *testing.T) {
	f := &fakeCluster{nodes: []string{"a", "b"}}
	mustList(t, f, noon)
	f.nodes = []string{"b"}
	mustList(t, f, later)
	f.nodes = []string{"a", "b"}
	if err := newTracker(f, later).Forget(t.Context(), lostnodes.Report{Reclaimed: []string{"a"}}); err != nil {
		t.Error(err)
	}
	if _, ok := f.stored.Data["a"]; !ok {
		t.Errorf("the ConfigMap has %v; want a in it", f.stored.Data)
	}
}

func TestForgetFailed(t *testing.T) {
	f := &fakeCluster{nodes: []string{"a", "b", "c"}}
	mustList(t, f, noon)
	f.nodes = []string{"c"}
	err := newTracker(f, later).Forget(t.Context(), lostnodes.Report{Reclaimed: []string{"a"}, Failed: map[string]string{"b": "the store is locked"}})
	if err == nil || !strings.Contains(err.Error(), "b: the store is locked") {
		t.Errorf("got %v; want the failure", err)
	}
	if _, ok := f.stored.Data["a"]; ok || len(f.stored.Data) != 2 {
		t.Errorf("the ConfigMap has %v; want b and c", f.stored.Data)
	}
}

// A Node may have existed in a gap between two looks.
func TestGap(t *testing.T) {
	f := &fakeCluster{nodes: []string{"a", "b"}}
	mustList(t, f, noon)
	f.nodes = []string{"b"}
	mustList(t, f, later)
	for _, minutes := range []int{120, 150, 179} {
		if got := mustList(t, f, later.Add(time.Duration(minutes)*time.Minute)); got != nil {
			t.Errorf("after %d minutes: lists %q; want none", minutes, got)
		}
	}
	if got := mustList(t, f, later.Add(3*time.Hour)); !slices.Equal(got, []string{"a "}) {
		t.Errorf("lists %q after an hour of looks; want a", got)
	}
}

// A sidecar can have the name of its machine, and live.
func TestNeverANode(t *testing.T) {
	f := &fakeCluster{nodes: []string{"b"}, pools: map[string][]string{"a": {"delegated-ipam/ciliumnode-0"}}}
	for i := range 20 {
		if got := mustList(t, f, noon.Add(time.Duration(i)*10*time.Minute)); got != nil {
			t.Fatalf("lists %q; want none: it never had a Node", got)
		}
	}
}

// A client that writes to a CiliumNode chooses the numbers.
func TestImpossibleSlot(t *testing.T) {
	for _, number := range []string{"1024", "65000", "9223372036854775806"} {
		f := &fakeCluster{nodes: []string{"a", "b"}, pools: map[string][]string{"a": {"delegated-ipam/ciliumnode-" + number, "delegated-ipam/ciliumnode-3"}}}
		mustList(t, f, noon)
		f.nodes, f.pools = []string{"b"}, nil
		mustList(t, f, later)
		mustList(t, f, later.Add(30*time.Minute))
		if got := mustList(t, f, later.Add(time.Hour)); !slices.Equal(got, []string{"a ciliumnode-0..3"}) {
			t.Errorf("slot %s: lists %q; want the possible slots", number, got)
		}
	}
}

// Another process has written since the read.
func TestConflict(t *testing.T) {
	for conflicts, want := range map[int]string{1: "", maxConflicts - 1: "", maxConflicts: "modified"} {
		f := &fakeCluster{nodes: []string{"a"}, conflicts: conflicts}
		_, err := newTracker(f, noon).Lost(t.Context(), selection())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d conflicts: got %v; want %q", conflicts, err, want)
		}
		if _, ok := f.stored.Data["other"]; !ok || want == "" && len(f.stored.Data) != 2 {
			t.Errorf("%d conflicts: the ConfigMap has %v; want both writes", conflicts, f.stored.Data)
		}
	}
}

// A failed read is not evidence that nodes are lost.
func TestTrackerErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeCluster)
		want   string
	}{
		"no Node":        {func(f *fakeCluster) { f.nodes = nil }, "lists no Node"},
		"half a list":    {func(f *fakeCluster) { f.nodes, f.failNodes = nil, errors.New("refused") }, "refused"},
		"no ConfigMap":   {func(f *fakeCluster) { f.stored.Name = "other" }, "expected an empty one"},
		"malformed data": {func(f *fakeCluster) { f.stored.Data["a"] = "x" }, "key a"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeCluster{nodes: []string{"a"}}
			mustList(t, f, noon)
			c.change(f)
			before := f.stored.DeepCopy()
			_, err := newTracker(f, later).Lost(t.Context(), selection())
			forget := newTracker(f, later).Forget(t.Context(), lostnodes.Report{Reclaimed: []string{"a"}})
			for _, err := range []error{err, forget} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v; want %q", err, c.want)
				}
			}
			if !reflect.DeepEqual(f.stored, before) {
				t.Errorf("the ConfigMap has changed to %v", f.stored.Data)
			}
		})
	}
}
