package deploy

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/yaml"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestLint(t *testing.T) {
	result := lint.All(ourChart, nil, "kube-system", true)
	for _, m := range result.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
	if empty := lint.All(t.TempDir(), nil, "kube-system", true); len(empty.Messages) == 0 {
		t.Error("nothing was found in an empty directory")
	}
}

// Artifact Hub reads the images from an annotation, as YAML; the icon is a file of the repository.
func TestChartMetadata(t *testing.T) {
	c, err := loader.Load(ourChart)
	check.Must(t, err)
	var images []struct{ Name, Image string }
	check.Must(t, yaml.Unmarshal([]byte(c.Metadata.Annotations["artifacthub.io/images"]), &images))
	want := []string{"ghcr.io/delegated-ipam/delegated-ipam:local", "ghcr.io/delegated-ipam/delegated-ipam-bridge:local"}
	var named []string
	for _, i := range images {
		named = append(named, i.Image)
	}
	if !slices.Equal(named, want) || len(c.Metadata.Maintainers) == 0 {
		t.Errorf("the chart has the images %v, want %v, and the maintainers %v", named, want, c.Metadata.Maintainers)
	}
	_, icon, _ := strings.Cut(c.Metadata.Icon, "/main/")
	if _, err := os.Stat("../../../" + icon); err != nil {
		t.Error(err)
	}
}

// The kustomizations have the objects of the chart.
func TestOneSource(t *testing.T) {
	wantOneSource(t, daemonSets(t), kustomized(t, "with-bridge"))
	wantOneSource(t, daemonSets(t, "bridge.enabled=false", "network.enabled=false", "daemon.installCNI=true"), kustomized(t, "pods"))
	all := sources(t, daemonSets(t, "audit.enabled=true,reclaim.enabled=true"))
	for _, part := range []string{"audit", "reclaim-job"} {
		for name, o := range sources(t, kustomized(t, part)) {
			if d := diff.Diff(all[name], o); d != "" {
				t.Errorf("%s differs between chart and kustomization:\n%s", name, d)
			}
		}
	}
}

func wantOneSource(t *testing.T, chart, kustomization []runtime.Object) {
	t.Helper()
	want, got := sources(t, chart), sources(t, kustomization)
	if a, b := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(a, b) {
		t.Fatalf("the kustomization has %v; the chart %v", b, a)
	}
	for name := range want {
		if d := diff.Diff(want[name], got[name]); d != "" {
			t.Errorf("%s differs between chart and kustomization:\n%s", name, d)
		}
	}
}

// ofHelm are the labels of an object that only Helm's have.
var ofHelm = []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"}

// sources returns the objects by kind and name, without Helm's labels, and without what makes a changed
// ConfigMap replace the pods: a checksum in the chart, a name with a hash in the kustomization.
func sources(t *testing.T, all []runtime.Object) map[string]runtime.Object {
	t.Helper()
	objects := map[string]runtime.Object{}
	for _, o := range all {
		o = o.DeepCopyObject()
		m := metadataOf(t, o)
		for _, label := range ofHelm {
			delete(m.GetLabels(), label)
		}
		if c, is := o.(*corev1.ConfigMap); is {
			c.Name, c.Labels = suffix.ReplaceAllString(c.Name, ""), nil
		}
		if d, is := o.(*appsv1.DaemonSet); is {
			d.Spec.Template.Annotations = nil
			for _, v := range d.Spec.Template.Spec.Volumes {
				if v.ConfigMap != nil {
					v.ConfigMap.Name = suffix.ReplaceAllString(v.ConfigMap.Name, "")
				}
			}
		}
		objects[o.GetObjectKind().GroupVersionKind().Kind+" "+m.GetName()] = o
	}
	return objects
}

// An API server without the policy would refuse the whole release.
func TestPolicyOnlyWhereSupported(t *testing.T) {
	old, err := template(t, ourChart, oldest, values.Options{})
	check.Must(t, err)
	for _, o := range old {
		if p, is := o.(*admissionv1.ValidatingAdmissionPolicy); is {
			t.Errorf("Kubernetes %s gets %v", oldest, p.Name)
		}
	}
}

// In an umbrella chart all charts share the names of templates.
func TestTemplateNames(t *testing.T) {
	c, err := loader.Load(ourChart)
	check.Must(t, err)
	count := 0
	for _, f := range c.Templates {
		for _, m := range regexp.MustCompile(`define "([^"]*)"`).FindAllStringSubmatch(string(f.Data), -1) {
			if count++; !strings.HasPrefix(m[1], "delegated-ipam.") {
				t.Errorf("%s defines %q; want a name that begins with delegated-ipam.", f.Name, m[1])
			}
		}
	}
	if count == 0 {
		t.Error("no template was found")
	}
}
