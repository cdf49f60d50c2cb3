package deploy

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/yaml"

	"helm.sh/helm/v3/pkg/cli/values"

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
		"fullnameOverride=" + strings.Repeat("y", 45): {strings.Repeat("y", 45), "kube-system"},
	} {
		t.Run(set, func(t *testing.T) {
			all := everything(t, allParts, set)
			exists := map[string]bool{}
			for _, o := range all {
				m := metadataOf(t, o)
				exists[o.GetObjectKind().GroupVersionKind().Kind+" "+m.GetName()] = true
				if m.GetName() != want[0] && !strings.HasPrefix(m.GetName(), want[0]+"-") || len(m.GetName()) > 63 {
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

// Each object has the labels that Helm's documentation recommends, and each pod those of its selector.
func TestLabels(t *testing.T) {
	common := []string{"name", "instance", "component", "part-of", "version", "managed-by"}
	for _, o := range everything(t, allParts, "commonLabels.team=net", "podLabels.scrape=yes") {
		m := metadataOf(t, o)
		got := m.GetLabels()
		for _, label := range common {
			if got["app.kubernetes.io/"+label] == "" {
				t.Errorf("%T %s lacks the label %s", o, m.GetName(), label)
			}
		}
		if got["helm.sh/chart"] != "delegated-ipam-0.0.0" || got["app.kubernetes.io/managed-by"] != "Helm" || got["team"] != "net" {
			t.Errorf("%T %s has the labels %v", o, m.GetName(), got)
		}
		if _, lone := o.(*corev1.Pod); lone {
			continue
		}
		if pod, has := podOf(o); has && (pod.Labels["team"] != "net" || pod.Labels["scrape"] != "yes") {
			t.Errorf("the pods of %s have the labels %v", m.GetName(), pod.Labels)
		}
		if d, is := o.(*appsv1.DaemonSet); is {
			selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
			check.Must(t, err)
			if !selector.Matches(labels.Set(d.Spec.Template.Labels)) || d.Spec.Selector.MatchLabels["app.kubernetes.io/instance"] != "delegated-ipam" {
				t.Errorf("%s selects %v; its pods have %v", d.Name, d.Spec.Selector, d.Spec.Template.Labels)
			}
		}
	}
}

// A PodMonitor selects the pods of one part, by a port that they have, with the job of the alerts.
func TestPodMonitor(t *testing.T) {
	const addresses = "bridge.metricsAddress=0.0.0.0:9000,network.metricsAddress=[::]:9968,daemon.options.metrics-address=192.0.2.1:9967"
	files, err := templateFiles(t, ourChart, newest, values.Options{Values: []string{"podMonitor.enabled=true,podMonitor.labels.release=prometheus", addresses}})
	check.Must(t, err)
	type monitor struct {
		Kind     string
		Metadata metav1.ObjectMeta
		Spec     struct {
			JobLabel            string
			Selector            metav1.LabelSelector
			PodMetricsEndpoints []struct{ Port string }
		}
	}
	jobs := map[string]int32{}
	for text := range strings.SplitSeq(files["delegated-ipam/templates/pod-monitor.yaml"], "\n---\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		var m monitor
		check.Must(t, yaml.Unmarshal([]byte(text), &m))
		if m.Kind != "PodMonitor" || m.Metadata.Labels["release"] != "prometheus" || len(m.Spec.PodMetricsEndpoints) != 1 {
			t.Errorf("got %+v", m)
		}
		selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
		check.Must(t, err)
		for name, text := range files {
			if !strings.HasSuffix(name, "daemonset.yaml") {
				continue
			}
			for _, o := range decode(t, name, []byte(text)) {
				pod, _ := podOf(o)
				if !selector.Matches(labels.Set(pod.Labels)) {
					continue
				}
				for _, p := range pod.Spec.Containers[0].Ports {
					if p.Name == m.Spec.PodMetricsEndpoints[0].Port {
						jobs[pod.Labels[m.Spec.JobLabel]] = p.ContainerPort
					}
				}
			}
		}
	}
	if want := map[string]int32{"delegated-ipam": 9967, "delegated-ipam-bridge": 9000, "delegated-ipam-network": 9968}; !maps.Equal(jobs, want) {
		t.Errorf("the jobs and ports are %v; want %v", jobs, want)
	}
	for _, set := range []string{"", "bridge.metricsAddress=0.0.0.0:9966,network.metricsAddress=0.0.0.0:9968", addresses + ",daemon.options.metrics-address=:9967"} {
		if _, err := templateFiles(t, ourChart, newest, values.Options{Values: []string{"podMonitor.enabled=true", set}}); err == nil || !strings.Contains(err.Error(), "does not reach") {
			t.Errorf("%q: error %v; want one that names an address on loopback", set, err)
		}
	}
	for _, d := range []string{"delegated-ipam", "delegated-ipam-bridge", "delegated-ipam-network"} {
		if p := named[*appsv1.DaemonSet](t, daemonSets(t), d).Spec.Template.Spec.Containers[0].Ports; p != nil {
			t.Errorf("by default %s has the ports %v", d, p)
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

// The runtime's socket is in no container where plugins run, and in none by default. The manifests have the
// container of the chart.
func TestRuntimeSocket(t *testing.T) {
	const socket = "/run/containerd/containerd.sock"
	patch, err := os.ReadFile("../../../deploy/kubernetes/overlays/pods/runtime.yaml")
	check.Must(t, err)
	chart := daemonSets(t, "daemon.installCNI=true", "daemon.runtimeSocket="+socket)
	var want corev1.Container
	for name, all := range map[string][]runtime.Object{
		"chart": chart, "overlay": overlay(t, "pods", "patches:\n- patch: |\n    "+strings.ReplaceAll(string(patch), "\n", "\n    ")),
	} {
		pod := named[*appsv1.DaemonSet](t, all, "delegated-ipam").Spec.Template.Spec
		d, c := deployed{pod: pod}, container(t, pod.Containers, "runtime")
		if v := d.volume(t, "runtime-socket").HostPath; v == nil || v.Path != socket || v.Type == nil || *v.Type != corev1.HostPathSocket {
			t.Errorf("%s: the volume is %v", name, v)
		}
		wantMounts(t, d, c, map[string]mount{socket: {socket, true}, "/var/run/delegated-ipam": {"/var/run/delegated-ipam", true}})
		for _, other := range slices.Concat(pod.InitContainers, pod.Containers) {
			if _, mounted := d.mounts(t, other)[socket]; mounted != (other.Name == "runtime") {
				t.Errorf("%s: %s has the runtime's socket: %t", name, other.Name, mounted)
			}
		}
		daemon := container(t, pod.Containers, "delegated-ipam")
		if !reflect.DeepEqual(c.SecurityContext, daemon.SecurityContext) || c.Image != daemon.Image || !slices.Equal(c.Command, []string{"delegated-ipam-cri"}) {
			t.Errorf("%s: the command is %v of %s, with %v", name, c.Command, c.Image, c.SecurityContext)
		}
		o, flags := options.NewCRI(nil)
		if err := flags.Parse(c.Args); err != nil || o.CRISocket != "unix://"+socket || o.Validate() != nil {
			t.Errorf("%s: %v: %+v, %v", name, c.Args, o, err)
		}
		if len(c.Env) != 1 || c.Env[0].Name != "K8S_POD_UID" || c.Env[0].ValueFrom.FieldRef.FieldPath != "metadata.uid" {
			t.Errorf("%s: the environment is %v", name, c.Env)
		}
		if want.Name == "" {
			want = c
		}
		if difference := diff.Diff(want, c); difference != "" {
			t.Errorf("overlay and chart differ:\n%s", difference)
		}
	}
}

// "helm uninstall" runs the hook before it deletes anything: first what stops the clients, then what releases
// the addresses, then what waits for it.
func TestDeleteHook(t *testing.T) {
	all := hooks(t, "pre-delete")
	weight := func(o runtime.Object) int {
		n, err := strconv.Atoi(metadataOf(t, o).GetAnnotations()["helm.sh/hook-weight"])
		check.Must(t, err)
		return n
	}
	prepare, finish := named[*batchv1.Job](t, all, "delegated-ipam-uninstall-prepare"), named[*batchv1.Job](t, all, "delegated-ipam-uninstall-finish")
	release := named[*appsv1.DaemonSet](t, all, "delegated-ipam-uninstall")
	account := named[*corev1.ServiceAccount](t, all, "delegated-ipam-uninstall")
	if !(weight(account) < weight(prepare) && weight(prepare) < weight(release) && weight(release) < weight(finish)) {
		t.Errorf("the weights are %d, %d, %d, %d", weight(account), weight(prepare), weight(release), weight(finish))
	}
	for _, o := range all {
		// A repeated uninstall creates them again, and a successful one leaves none.
		if got := metadataOf(t, o).GetAnnotations()["helm.sh/hook-delete-policy"]; got != "before-hook-creation,hook-succeeded" {
			t.Errorf("%T %s: the policy is %q", o, metadataOf(t, o).GetName(), got)
		}
	}
	for step, job := range map[string]*batchv1.Job{"prepare": prepare, "finish": finish} {
		c := job.Spec.Template.Spec.Containers[0]
		if want := []string{"delegated-ipam-bridge", "uninstall", step}; !slices.Equal(c.Command, want) || *job.Spec.BackoffLimit != 0 {
			t.Errorf("the command is %v; want %v, once", c.Command, want)
		}
		o, flags := options.NewUninstall()
		if err := flags.Parse(c.Args); err != nil || o.Namespace != "kube-system" || o.Name != "delegated-ipam" || o.KeepDaemon {
			t.Errorf("%v: %+v, %v", c.Args, o, err)
		}
		// Nodes whose agent is gone are not ready.
		if !job.Spec.Template.Spec.HostNetwork || len(job.Spec.Template.Spec.Tolerations) == 0 {
			t.Errorf("%s waits for the agent", step)
		}
	}
	pod := release.Spec.Template.Spec
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
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{"delegated-ipam", "delegated-ipam-bridge", "delegated-ipam-network"}, Verbs: []string{"get", "delete"}},
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{"delegated-ipam-uninstall"}, Verbs: []string{"get"}},
	}
	if got := named[*rbacv1.Role](t, all, "delegated-ipam-uninstall").Rules; !slices.EqualFunc(got, want, func(a, b rbacv1.PolicyRule) bool { return a.String() == b.String() }) {
		t.Errorf("the rules are %v; want %v", got, want)
	}
	kept := named[*batchv1.Job](t, hooks(t, "pre-delete", "daemon.enabled=false"), "delegated-ipam-uninstall-finish")
	if !slices.Contains(kept.Spec.Template.Spec.Containers[0].Args, "--keep-daemon") {
		t.Error("a daemon in Cilium's pod is removed")
	}
	if left := hooks(t, "pre-delete", "deleteHook.enabled=false"); len(left) > 0 {
		t.Errorf("without the hook %d objects are left", len(left))
	}
}

// "helm test" asks the daemon of a node as its probes do, and compares the pools of all nodes.
func TestHelmTest(t *testing.T) {
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	n.Start(t, "--enable-ipv6=false")
	all := hooks(t, "test")
	daemon := named[*corev1.Pod](t, all, "delegated-ipam-test-daemon").Spec
	if !daemon.HostPID {
		t.Error("the probe does not see the daemon's process, and would refuse its answer")
	}
	c := daemon.Containers[0]
	if out := n.Command(t, c.Command[1:]...); out.ExitCode != 0 {
		t.Errorf("%v of a ready daemon: exit status %d: %s", c.Command, out.ExitCode, out.Stderr)
	}
	pod := named[*corev1.Pod](t, all, "delegated-ipam-test-cluster").Spec
	if got := pod.Containers[0].Command; !slices.Equal(got, []string{"delegated-ipam-bridge", "audit"}) || pod.Containers[0].Args != nil {
		t.Errorf("the command is %v", got)
	}
	whole := named[*corev1.Pod](t, hooks(t, "test", "network.enabled=false"), "delegated-ipam-test-cluster").Spec.Containers[0]
	if !slices.Equal(whole.Args, []string{"--shared-range"}) {
		t.Errorf("with a plugin for the whole cluster the arguments are %v", whole.Args)
	}
	if got, want := named[*rbacv1.ClusterRole](t, all, "delegated-ipam-test-cluster").Rules, named[*rbacv1.ClusterRole](t, daemonSets(t, "audit.enabled=true"), "delegated-ipam-audit").Rules; len(got) != len(want) || got[0].String() != want[0].String() || got[1].String() != want[1].String() {
		t.Errorf("the rules are %v; want those of audit", got)
	}
	if left := hooks(t, "test", "daemon.enabled=false,bridge.enabled=false"); len(left) > 0 {
		t.Errorf("without both programs %d objects are left", len(left))
	}
}
