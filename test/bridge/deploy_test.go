package bridge

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/pkg/bridge/command"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// deployed are the objects of a file in deploy/bridge of a kind, each with no key
// that the API server would not know.
func deployed[T any](t *testing.T, file, kind string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "bridge", file))
	if err != nil {
		t.Fatal(err)
	}
	var found []T
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		var meta struct{ Kind string }
		if err := yaml.Unmarshal(document, &meta); err != nil {
			t.Fatal(err)
		}
		if meta.Kind != kind {
			continue
		}
		var object T
		if err := yaml.UnmarshalStrict(document, &object); err != nil {
			t.Fatalf("%s: %s: %v", file, kind, err)
		}
		found = append(found, object)
	}
	if len(found) == 0 {
		t.Fatalf("%s has no %s", file, kind)
	}
	return found
}

func TestTheDaemonSetRunsBothProgramsWithOptionsThatTheyHave(t *testing.T) {
	pod := deployed[appsv1.DaemonSet](t, "daemonset.yaml", "DaemonSet")[0].Spec.Template.Spec
	for _, c := range pod.Containers {
		args := append(slices.Clone(c.Args), "--help")
		switch line := strings.Join(c.Command, " "); line {
		case "delegated-ipam serve":
			if out := harness.NewNode(t).Command(t, append([]string{"serve"}, args...)...); out.Code != 0 {
				t.Errorf("%s %q: exit status %d: %s", line, c.Args, out.Code, out.Stderr)
			}
		case "delegated-ipam-bridge":
			var stderr bytes.Buffer
			if code := command.Run(t.Context(), args, nil, io.Discard, &stderr, ""); code != 0 {
				t.Errorf("%s %q: exit status %d: %s", line, c.Args, code, &stderr)
			}
		default:
			t.Errorf("container %s runs %q, which is neither of our programs", c.Name, line)
		}
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "K8S_NODE_NAME" && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
		}) {
			t.Errorf("container %s is not told its node's name", c.Name)
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("container %s mounts %s, which is no volume of the pod", c.Name, m.Name)
			}
		}
	}
	if len(pod.Containers) != 2 || !pod.HostNetwork {
		t.Errorf("%d containers, host network %t; want sidecar and bridge, before there is a pod network", len(pod.Containers), pod.HostNetwork)
	}
}

// tokenPath is where client-go looks for what a pod reaches the API server with.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

func TestOnlyTheBridgeHasTheTokenOfTheServiceAccount(t *testing.T) {
	pod := deployed[appsv1.DaemonSet](t, "daemonset.yaml", "DaemonSet")[0].Spec.Template.Spec
	if mounts := pod.AutomountServiceAccountToken; mounts == nil || *mounts {
		t.Error("every container is given the token")
	}
	has := map[string][]string{}
	for _, v := range pod.Volumes {
		if v.Projected != nil {
			has[v.Name] = files(v.Projected.Sources)
		}
	}
	for _, c := range pod.Containers {
		var got []string
		for _, m := range c.VolumeMounts {
			if files, projected := has[m.Name]; projected {
				got = append(got, m.MountPath)
				if want := []string{"ca.crt", "namespace", "token"}; !slices.Equal(files, want) {
					t.Errorf("%s has %v; want %v, as client-go reads them", m.MountPath, files, want)
				}
			}
		}
		want := []string(nil)
		if c.Name == "bridge" {
			want = []string{tokenPath}
		}
		if !slices.Equal(got, want) {
			t.Errorf("container %s has the token at %v; want %v", c.Name, got, want)
		}
	}
}

// files are the names in a projected volume, in order.
func files(sources []corev1.VolumeProjection) (names []string) {
	for _, s := range sources {
		switch {
		case s.ServiceAccountToken != nil:
			names = append(names, s.ServiceAccountToken.Path)
		case s.ConfigMap != nil:
			for _, i := range s.ConfigMap.Items {
				names = append(names, i.Path)
			}
		case s.DownwardAPI != nil:
			for _, i := range s.DownwardAPI.Items {
				names = append(names, i.Path)
			}
		}
	}
	slices.Sort(names)
	return names
}

func TestTheDaemonSetHasTheRightsOfTheBridge(t *testing.T) {
	account := deployed[appsv1.DaemonSet](t, "daemonset.yaml", "DaemonSet")[0].Spec.Template.Spec.ServiceAccountName
	for _, binding := range deployed[rbacv1.ClusterRoleBinding](t, "rbac.yaml", "ClusterRoleBinding") {
		for _, subject := range binding.Subjects {
			if subject.Name != account {
				t.Errorf("the rights are those of %s, and the DaemonSet runs as %s", subject.Name, account)
			}
		}
	}
}

// The sidecar of the DaemonSet serves what its ConfigMap holds.
func TestTheNetworkOfTheDaemonSetCanBeServed(t *testing.T) {
	conf := deployed[corev1.ConfigMap](t, "daemonset.yaml", "ConfigMap")[0]
	n := harness.NewNode(t)
	for file, text := range conf.Data {
		n.WriteConf(t, file, []byte(strings.Replace(text, `"type": "host-local",`, `"type": "host-local", "dataDir": "`+n.StoreDir+`",`, 1)))
	}
	s := n.Start(t, "--owners=ciliumnode-*", "--enable-ipv6=false")
	if got := s.Allocate(t, harness.Request{Owner: "ciliumnode-0"}).Addresses(); len(got) != 1 {
		t.Errorf("slot 0 got %v", got)
	}
}
