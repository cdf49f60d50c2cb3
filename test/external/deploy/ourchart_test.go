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
	rbacv1 "k8s.io/api/rbac/v1"
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

func TestValues(t *testing.T) {
	const paths = "hostPaths.cniConf=/k3s/net.d,hostPaths.cniBin=/k3s/bin,hostPaths.leases=/l,hostPaths.run=/r,hostPaths.state=/s,hostPaths.network=/n,hostPaths.machineID="
	for name, c := range map[string]struct {
		set  string
		want func(daemon, bridge, network *appsv1.DaemonSet) bool
	}{
		"paths": {paths, func(s, b, n *appsv1.DaemonSet) bool {
			pod := func(d *appsv1.DaemonSet) corev1.PodSpec { return d.Spec.Template.Spec }
			d := deployed{pod: pod(s)}
			got := d.mounts(t, pod(s).Containers[0])
			_, machineID := got["/etc/machine-id"]
			return !machineID && got["/etc/cni/net.d"].from == "/k3s/net.d" && got["/opt/cni/bin"].from == "/k3s/bin" && got["/l"].from == "/l" &&
				got["/var/run/delegated-ipam"].from == "/r" && got["/var/lib/delegated-ipam"].from == "/s" && got["/etc/delegated-ipam/network"].from == "/n" &&
				deployed{pod: pod(b)}.mounts(t, pod(b).Containers[0])["/var/run/delegated-ipam"].from == "/r" &&
				deployed{pod: pod(n)}.mounts(t, pod(n).Containers[0])["/run/delegated-ipam"].from == "/n"
		}},
		"the group of the socket": {"daemon.options.socket-group=77", func(s, _, _ *appsv1.DaemonSet) bool {
			return slices.Equal(s.Spec.Template.Spec.SecurityContext.SupplementalGroups, []int64{77})
		}},
		"the group": {"group=4711", func(s, b, _ *appsv1.DaemonSet) bool {
			return *s.Spec.Template.Spec.Containers[0].SecurityContext.RunAsGroup == 4711 && *b.Spec.Template.Spec.Containers[0].SecurityContext.RunAsGroup == 4711
		}},
		"the API server": {"apiServer.host=192.0.2.1,apiServer.port=6443", func(_, b, n *appsv1.DaemonSet) bool {
			for _, d := range []*appsv1.DaemonSet{b, n} {
				for _, want := range []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "192.0.2.1"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}} {
					if !slices.Contains(d.Spec.Template.Spec.Containers[0].Env, want) {
						return false
					}
				}
			}
			return true
		}},
		"a private registry": {"daemon.image.registry=registry.example.com:5000,daemon.image.tag=v1,bridge.image.registry=,bridge.image.repository=b," +
			"bridge.image.digest=sha256:" + digest + ",imagePullSecrets[0].name=pull", func(s, b, n *appsv1.DaemonSet) bool {
			want := []corev1.LocalObjectReference{{Name: "pull"}}
			return s.Spec.Template.Spec.Containers[0].Image == "registry.example.com:5000/delegated-ipam/delegated-ipam:v1" && b.Spec.Template.Spec.Containers[0].Image == "b:local@sha256:"+digest &&
				n.Spec.Template.Spec.Containers[0].Image == b.Spec.Template.Spec.Containers[0].Image &&
				slices.Equal(s.Spec.Template.Spec.ImagePullSecrets, want) && slices.Equal(n.Spec.Template.Spec.ImagePullSecrets, want)
		}},
		"options of the bridge": {"bridge.options.min-allocate=12", func(_, b, _ *appsv1.DaemonSet) bool {
			return slices.Contains(b.Spec.Template.Spec.Containers[0].Args, "--min-allocate=12")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			all := daemonSets(t, c.set)
			set := func(name string) *appsv1.DaemonSet { return named[*appsv1.DaemonSet](t, all, name) }
			if !c.want(set("delegated-ipam"), set("delegated-ipam-bridge"), set("delegated-ipam-network")) {
				t.Errorf("%s has no effect, or another one", c.set)
			}
		})
	}
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// An API server without the policy would refuse the whole release.
func TestPolicyOnlyWhereSupported(t *testing.T) {
	policies := func(all []runtime.Object) (names []string) {
		for _, o := range all {
			if p, is := o.(*admissionv1.ValidatingAdmissionPolicy); is {
				names = append(names, p.Name)
			}
		}
		return slices.Sorted(slices.Values(names))
	}
	for set, want := range map[string][]string{
		"":                             {"delegated-ipam-bridge", "delegated-ipam-bridge-events", "delegated-ipam-network-events"},
		"bridge.enabled=false":         {"delegated-ipam-network-events"},
		"network.enabled=false":        {"delegated-ipam-bridge", "delegated-ipam-bridge-events"},
		"bridge.admissionPolicy=false": {"delegated-ipam-network-events"},
	} {
		if got := policies(daemonSets(t, set)); !slices.Equal(got, want) {
			t.Errorf("with %q the policies are %v; want %v", set, got, want)
		}
	}
	old, err := template(t, ourChart, oldest, values.Options{})
	check.Must(t, err)
	if got := policies(old); len(got) > 0 {
		t.Errorf("Kubernetes %s gets %v", oldest, got)
	}
}

// Without the watch the token cannot read the pods of the cluster.
func TestPodsRight(t *testing.T) {
	for set, want := range map[string]bool{"": true, "bridge.options.watch-pods=true": true, "bridge.options.watch-pods=false": false} {
		rules := named[*rbacv1.ClusterRole](t, daemonSets(t, set), "delegated-ipam-bridge").Rules
		if got := slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") }); got != want {
			t.Errorf("with %q the right to read pods is granted: %t; want %t", set, got, want)
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
