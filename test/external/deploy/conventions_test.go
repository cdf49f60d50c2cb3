package deploy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// allParts enables every part of built-in kinds.
const allParts = "audit.enabled=true,reclaim.enabled=true,dashboard.enabled=true"

// podOf returns the pod of an object, if it has one.
func podOf(o runtime.Object) (corev1.PodTemplateSpec, bool) {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return o.Spec.Template, true
	case *batchv1.Job:
		return o.Spec.Template, true
	case *batchv1.CronJob:
		return o.Spec.JobTemplate.Spec.Template, true
	case *corev1.Pod:
		return corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}, true
	}
	return corev1.PodTemplateSpec{}, false
}

// Every object has the release's name, and those of other objects in it are right.
func TestNames(t *testing.T) {
	for set, want := range map[string][2]string{
		"":                      {"delegated-ipam", "kube-system"},
		"nameOverride=other":    {"delegated-ipam-other", "kube-system"},
		"fullnameOverride=x":    {"x", "kube-system"},
		"namespaceOverride=cni": {"delegated-ipam", "cni"},
		"daemon.enabled=false":  {"delegated-ipam", "kube-system"},
		"fullnameOverride=" + strings.Repeat("y", 44): {strings.Repeat("y", 44), "kube-system"},
		"nameOverride=" + strings.Repeat("y", 44):     {"delegated-ipam-" + strings.Repeat("y", 29), "kube-system"},
	} {
		t.Run(set, func(t *testing.T) {
			exists, refers := map[string]bool{"ServiceAccount default": true}, map[string]string{}
			bind := func(from string, role rbacv1.RoleRef, subjects []rbacv1.Subject) {
				refers[role.Kind+" "+role.Name] = from
				for _, s := range subjects {
					if refers[s.Kind+" "+s.Name] = from; s.Namespace != want[1] {
						t.Errorf("%s is for %s in %s; want %s", from, s.Name, s.Namespace, want[1])
					}
				}
			}
			for _, o := range everything(t, allParts, set) {
				m := metadataOf(t, o)
				name := m.GetName()
				exists[o.GetObjectKind().GroupVersionKind().Kind+" "+name] = true
				longest := 63
				switch o := o.(type) {
				case *batchv1.CronJob:
					longest = 52 // the API server refuses others: the names of Jobs are longer
				case *rbacv1.ClusterRoleBinding:
					bind(name, o.RoleRef, o.Subjects)
				case *rbacv1.RoleBinding:
					bind(name, o.RoleRef, o.Subjects)
				}
				if name != want[0] && !strings.HasPrefix(name, want[0]+"-") || len(name) > longest {
					t.Errorf("%T is named %s; want %s or longer", o, name, want[0])
				}
				if n := m.GetNamespace(); n != "" && n != want[1] {
					t.Errorf("%s is in %s; want %s", name, n, want[1])
				}
				if pod, has := podOf(o); has {
					refers["ServiceAccount "+cmp.Or(pod.Spec.ServiceAccountName, "default")] = name
					for _, v := range pod.Spec.Volumes {
						if v.ConfigMap != nil && (v.ConfigMap.Optional == nil || !*v.ConfigMap.Optional) {
							refers["ConfigMap "+v.ConfigMap.Name] = name
						}
					}
				}
			}
			for to, from := range refers {
				if !exists[to] {
					t.Errorf("%s names the %s, which is missing", from, to)
				}
			}
		})
	}
}

// The constraints of docs/install/platforms.md admit the pods of every part and hook: no other ones permit their users.
func TestOpenShift(t *testing.T) {
	_, after, _ := strings.Cut(read(t, "../../../docs/install/platforms.md"), "kind: SecurityContextConstraints\n")
	text, _, _ := strings.Cut(after, "```")
	var constraints struct {
		Users, Volumes []string
		AllowHostPID   bool
	}
	check.Must(t, yaml.Unmarshal([]byte(text), &constraints))
	for _, o := range everything(t, allParts) {
		pod, has := podOf(o)
		name := metadataOf(t, o).GetName()
		if user := "system:serviceaccount:delegated-ipam:" + cmp.Or(pod.Spec.ServiceAccountName, "default"); has && !slices.Contains(constraints.Users, user) {
			t.Errorf("%s of %s is not among %v", user, name, constraints.Users)
		}
		if pod.Spec.HostPID && !constraints.AllowHostPID {
			t.Errorf("%s has the host's processes", name)
		}
		for _, v := range pod.Spec.Volumes {
			if v.EmptyDir != nil && !slices.Contains(constraints.Volumes, "emptyDir") {
				t.Errorf("the volume %s of %s is not among %v", v.Name, name, constraints.Volumes)
			}
		}
	}
}

func TestDashboard(t *testing.T) {
	m := named[*corev1.ConfigMap](t, everything(t, allParts), "delegated-ipam-dashboard")
	if got, want := m.Data["delegated-ipam.json"], read(t, "../../../deploy/grafana/delegated-ipam.json"); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("the ConfigMap has %d bytes; want the dashboard of deploy/grafana, %d bytes", len(got), len(want))
	}
}

func TestLint(t *testing.T) {
	for _, m := range lint.All(ourChart, nil, "kube-system", true).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// Artifact Hub reads the images from an annotation, as YAML; the icon is a file of the repository; a release names its
// own page of runbooks.
func TestChartMetadata(t *testing.T) {
	c, err := loader.Load(ourChart)
	check.Must(t, err)
	var images []struct{ Name, Image string }
	check.Must(t, yaml.Unmarshal([]byte(c.Metadata.Annotations["artifacthub.io/images"]), &images))
	if len(images) != 2 || images[0].Image != "ghcr.io/delegated-ipam/delegated-ipam:local" || images[1].Image != "ghcr.io/delegated-ipam/delegated-ipam-bridge:local" {
		t.Errorf("the images are %v", images)
	}
	_, icon, _ := strings.Cut(c.Metadata.Icon, "/main/")
	read(t, "../../../"+icon)
	c.Metadata.AppVersion = "v1.2.3"
	files, err := renderFiles(t, c, newest, given(t, "prometheusRule.enabled=true"))
	check.Must(t, err)
	if text := files["delegated-ipam/templates/prometheus-rule.yaml"]; !strings.Contains(text, "/blob/v1.2.3/docs/troubleshooting.md#") {
		t.Errorf("the runbooks are not those of the release:\n%s", text)
	}
	// In an umbrella chart all charts share the names of templates.
	for _, f := range c.Templates {
		for _, m := range regexp.MustCompile(`define "([^"]*)"`).FindAllStringSubmatch(string(f.Data), -1) {
			if !strings.HasPrefix(m[1], "delegated-ipam.") {
				t.Errorf("%s defines %q; want a name that begins with delegated-ipam.", f.Name, m[1])
			}
		}
	}
}

// An API server without the policy would refuse the whole release.
func TestPolicyOnlyWhereSupported(t *testing.T) {
	old, err := templateFiles(t, ourChart, oldest, given(t))
	check.Must(t, err)
	if text := fmt.Sprint(old); strings.Contains(text, "kind: ValidatingAdmissionPolicy") {
		t.Errorf("Kubernetes %s gets a policy: %s", oldest, text)
	}
}

// The cluster of kind has the range of Cilium's values.
func TestKind(t *testing.T) {
	var cluster struct{ Networking struct{ PodSubnet string } }
	check.Must(t, yaml.Unmarshal([]byte(read(t, "../../../deploy/kind/cluster.yaml")), &cluster))
	config := named[*corev1.ConfigMap](t, decode(t, ciliumText(t, newest, "../kind/cilium.yaml")), "cilium-config").Data
	if got := config["ipv4-native-routing-cidr"]; got != cluster.Networking.PodSubnet {
		t.Errorf("the range of the cluster is %s, and that of Cilium %s", cluster.Networking.PodSubnet, got)
	}
}
