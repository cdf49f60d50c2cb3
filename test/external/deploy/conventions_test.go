package deploy

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
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
			all := everything(t, allParts, set)
			exists := map[string]bool{}
			for _, o := range all {
				m := metadataOf(t, o)
				exists[o.GetObjectKind().GroupVersionKind().Kind+" "+m.GetName()] = true
				longest := 63
				if _, is := o.(*batchv1.CronJob); is {
					longest = 52 // the API server refuses others: the names of Jobs are longer
				}
				if m.GetName() != want[0] && !strings.HasPrefix(m.GetName(), want[0]+"-") || len(m.GetName()) > longest {
					t.Errorf("%T is named %s; want %s or longer", o, m.GetName(), want[0])
				}
				if n := m.GetNamespace(); n != "" && n != want[1] {
					t.Errorf("%s is in %s; want %s", m.GetName(), n, want[1])
				}
			}
			refers := func(from, kind, to string) {
				t.Helper()
				if to != "" && to != "default" && !exists[kind+" "+to] {
					t.Errorf("%s names the %s %s, which is missing", from, kind, to)
				}
			}
			for _, o := range all {
				name := metadataOf(t, o).GetName()
				if pod, has := podOf(o); has {
					refers(name, "ServiceAccount", pod.Spec.ServiceAccountName)
					for _, v := range pod.Spec.Volumes {
						if v.ConfigMap != nil && (v.ConfigMap.Optional == nil || !*v.ConfigMap.Optional) {
							refers(name, "ConfigMap", v.ConfigMap.Name)
						}
					}
				}
				var role rbacv1.RoleRef
				var subjects []rbacv1.Subject
				switch b := o.(type) {
				case *rbacv1.ClusterRoleBinding:
					role, subjects = b.RoleRef, b.Subjects
				case *rbacv1.RoleBinding:
					role, subjects = b.RoleRef, b.Subjects
				}
				refers(name, role.Kind, role.Name)
				for _, s := range subjects {
					if refers(name, s.Kind, s.Name); s.Namespace != want[1] {
						t.Errorf("%s is for %s in %s; want %s", name, s.Name, s.Namespace, want[1])
					}
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
		if !has {
			continue
		}
		name := metadataOf(t, o).GetName()
		if user := "system:serviceaccount:delegated-ipam:" + cmp.Or(pod.Spec.ServiceAccountName, "default"); !slices.Contains(constraints.Users, user) {
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
	want, err := os.ReadFile("../../../deploy/grafana/delegated-ipam.json")
	check.Must(t, err)
	m := named[*corev1.ConfigMap](t, daemonSets(t, "dashboard.enabled=true"), "delegated-ipam-dashboard")
	if got := strings.TrimRight(m.Data["delegated-ipam.json"], "\n"); got != strings.TrimRight(string(want), "\n") || m.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the ConfigMap has %d bytes and the labels %v; want the dashboard of deploy/grafana, %d bytes", len(got), m.Labels, len(want))
	}
}

// The manifests have the container of the chart, whose arguments the program accepts.
func TestRuntimeContainer(t *testing.T) {
	patch := read(t, "../../../deploy/kubernetes/overlays/pods/runtime.yaml")
	inPod := func(all []runtime.Object) (corev1.Container, corev1.Volume) {
		pod := named[*appsv1.DaemonSet](t, all, "delegated-ipam").Spec.Template.Spec
		return container(t, pod.Containers, "runtime"), deployed{pod: pod}.volume(t, "runtime-socket")
	}
	c, volume := inPod(daemonSets(t, "daemon.installCNI=true", "daemon.runtimeSocket="+runtimeSocket))
	patched, patchedVolume := inPod(overlay(t, "pods", "patches:\n- patch: |\n    "+strings.ReplaceAll(patch, "\n", "\n    ")))
	if difference := diff.Diff(c, patched) + diff.Diff(volume, patchedVolume); difference != "" {
		t.Errorf("chart and overlay differ:\n%s", difference)
	}
	o, flags := options.NewCRI(nil)
	if err := flags.Parse(c.Args); err != nil || o.CRISocket != "unix://"+runtimeSocket || o.Validate() != nil {
		t.Errorf("%v: %+v, %v", c.Args, o, err)
	}
}

// The programs accept the arguments of the hook, whose order testdata/chart.yaml shows: first what stops the clients, then
// what releases the addresses, then what waits for it.
func TestDeleteHook(t *testing.T) {
	all := hooks(t, "pre-delete")
	for _, step := range []string{"prepare", "finish"} {
		o, flags := options.NewUninstall()
		args := named[*batchv1.Job](t, all, "delegated-ipam-uninstall-"+step).Spec.Template.Spec.Containers[0].Args
		if err := flags.Parse(args); err != nil || o.Namespace != "kube-system" || o.Name != "delegated-ipam" || o.KeepDaemon {
			t.Errorf("%v: %+v, %v", args, o, err)
		}
	}
	pod := named[*appsv1.DaemonSet](t, all, "delegated-ipam-uninstall").Spec.Template.Spec
	container(t, pod.InitContainers, "release") // the name that finish waits for
	n := harness.NewNode(t)
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Command[0] != "delegated-ipam" {
			continue // cmd/delegated-ipam-bridge/cli tests network --remove
		}
		if out := n.Command(t, append(slices.Clone(c.Command[1:]), "--help")...); out.ExitCode != 0 {
			t.Errorf("%v: exit status %d: %s", c.Command, out.ExitCode, out.Stderr)
		}
	}
}

// "helm test" queries the daemon of a node as its probes do.
func TestHelmTest(t *testing.T) {
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	n.Start(t, "--enable-ipv6=false")
	c := named[*corev1.Pod](t, hooks(t, "test"), "delegated-ipam-test-daemon").Spec.Containers[0]
	if out := n.Command(t, c.Command[1:]...); out.ExitCode != 0 {
		t.Errorf("%v of a ready daemon: exit status %d: %s", c.Command, out.ExitCode, out.Stderr)
	}
}
