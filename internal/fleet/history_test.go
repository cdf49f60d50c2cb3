package fleet

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"github.com/delegated-ipam/delegated-ipam/internal/fleet/lostnodes"
)

// fakeConfigMap is a ConfigMap with the name "nodes".
type fakeConfigMap struct {
	typedcorev1.ConfigMapInterface
	data map[string]string
	// conflicts is how many updates find a write of another process.
	conflicts, writes int
}

func (f *fakeConfigMap) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	if name != "nodes" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: maps.Clone(f.data)}, nil
}

func (f *fakeConfigMap) Update(_ context.Context, m *corev1.ConfigMap, _ metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	if f.conflicts > 0 {
		f.conflicts--
		f.data = map[string]string{"other": `{"uid":"uid-other"}`}
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, m.Name, errors.New("modified"))
	}
	f.writes++
	f.data = m.Data
	return m, nil
}

func add(h lostnodes.History) lostnodes.History {
	h = maps.Clone(h)
	h["a"] = lostnodes.Entry{UID: "a-1", Slots: 3}
	return h
}

func TestHistory(t *testing.T) {
	f := &fakeConfigMap{}
	for range 2 {
		h, err := History{f, "nodes"}.Update(t.Context(), add)
		if err != nil || h["a"].Slots != 3 || !maps.Equal(f.data, map[string]string{"a": `{"uid":"a-1","slots":3}`}) {
			t.Errorf("got %v, %v, and the ConfigMap has %v", h, err, f.data)
		}
	}
	if f.writes != 1 {
		t.Errorf("an equal history was written %d times; want once", f.writes)
	}
	if _, err := (History{f, "none"}).Update(t.Context(), add); err == nil || !strings.Contains(err.Error(), "expected an empty one") {
		t.Errorf("no ConfigMap: got %v", err)
	}
	f.data["b"] = "x"
	if _, err := (History{f, "nodes"}).Update(t.Context(), add); err == nil || !strings.Contains(err.Error(), "key b") || f.writes != 1 {
		t.Errorf("malformed data: got %v and %d writes", err, f.writes)
	}
}

// Another process has written since the read.
func TestConflict(t *testing.T) {
	most := retry.DefaultRetry.Steps
	for conflicts, want := range map[int]string{1: "", most - 1: "", most: "modified"} {
		f := &fakeConfigMap{conflicts: conflicts}
		_, err := History{f, "nodes"}.Update(t.Context(), add)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d conflicts: got %v; want %q", conflicts, err, want)
		}
		if _, ok := f.data["other"]; !ok || want == "" && len(f.data) != 2 {
			t.Errorf("%d conflicts: the ConfigMap has %v; want both writes", conflicts, f.data)
		}
	}
}

func TestIPPools(t *testing.T) {
	pool := func(name string, allocations map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
			"metadata": map[string]any{"name": name, "namespace": "kube-system"},
			"spec":     map[string]any{"range": "10.0.0.0/24", "allocations": allocations},
		}}
	}
	reserved := func(id string) map[string]any { return map[string]any{"id": id, "podref": "x/y"} }
	for name, c := range map[string]struct {
		pools []runtime.Object
		want  map[string]bool
		err   string
	}{
		"two pools": {
			[]runtime.Object{pool("a", map[string]any{"1": reserved("x"), "2": reserved("y")}), pool("b", map[string]any{"1": reserved("x")})},
			map[string]bool{"x": true, "y": true},
			"",
		},
		"empty":   {[]runtime.Object{pool("a", nil)}, map[string]bool{}, ""},
		"no pool": {nil, nil, "--whereabouts-namespace"},
		"no ID":   {[]runtime.Object{pool("a", map[string]any{"1": map[string]any{}})}, nil, "allocation 1 has no id"},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := map[schema.GroupVersionResource]string{{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Resource: "ippools"}: "IPPoolList"}
			cluster := &Cluster{dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, c.pools...)}
			got, err := cluster.IPPools("kube-system")(t.Context())
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || !maps.Equal(got, c.want) {
				t.Errorf("got %v, %v; want %v, %q", got, err, c.want, c.err)
			}
		})
	}
}
