package deploy

import (
	"fmt"
	"path"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// rendering makes the objects of an installation.
type rendering func(*testing.T) []runtime.Object

// once is a rendering that is made once and that nobody changes.
func once(make rendering) rendering {
	var (
		first sync.Once
		all   []runtime.Object
	)
	return func(t *testing.T) []runtime.Object {
		t.Helper()
		first.Do(func() { all = make(t) })
		return all
	}
}

// installation is one way in which the sidecar comes to a node.
type installation struct {
	name    string
	objects rendering
	// daemonSet has the sidecar's pod.
	daemonSet string
	// bridge tells that the sidecar is the bridge's.
	bridge bool
}

// installations are all of them.
var installations = []installation{
	{"the chart, on the oldest Kubernetes", once(func(t *testing.T) []runtime.Object { return chart(t, oldest, sidecarYAML) }), "cilium", false},
	{"the chart", once(func(t *testing.T) []runtime.Object { return chart(t, newest, sidecarYAML) }), "cilium", false},
	{"the chart with the bridge", once(func(t *testing.T) []runtime.Object { return chart(t, newest, sidecarYAML, overlayYAML) }), "cilium", true},
	{"the DaemonSet", once(func(t *testing.T) []runtime.Object { return kustomized(t, "sidecar") }), "delegated-ipam", false},
	{"the DaemonSet with the bridge", once(func(t *testing.T) []runtime.Object { return kustomized(t, "with-bridge") }), "delegated-ipam", true},
}

// deployed is an installation as it is rendered.
type deployed struct {
	installation
	all []runtime.Object
	pod corev1.PodSpec
	// sidecar is the container of the sidecar.
	sidecar corev1.Container
}

// each runs a test with every installation.
func each(t *testing.T, test func(*testing.T, deployed)) {
	t.Helper()
	for _, i := range installations {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			test(t, render(t, i))
		})
	}
}

func render(t *testing.T, i installation) deployed {
	t.Helper()
	d := deployed{installation: i, all: i.objects(t)}
	d.pod = named[*appsv1.DaemonSet](t, d.all, i.daemonSet).Spec.Template.Spec
	d.sidecar = container(t, slices.Concat(d.pod.InitContainers, d.pod.Containers), "delegated-ipam")
	return d
}

// container returns the one of that name.
func container(t *testing.T, all []corev1.Container, name string) corev1.Container {
	t.Helper()
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	if at < 0 {
		t.Fatalf("no container is named %s", name)
	}
	return all[at]
}

// inChart tells whether the pod is cilium-agent's.
func (d deployed) inChart() bool { return d.daemonSet == "cilium" }

// volume returns the pod's volume of that name.
func (d deployed) volume(t *testing.T, name string) corev1.Volume {
	t.Helper()
	at := slices.IndexFunc(d.pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if at < 0 {
		t.Fatalf("%s is no volume of the pod", name)
	}
	return d.pod.Volumes[at]
}

// files are those that the sidecar finds in a directory that a ConfigMap is mounted
// on: what the kubelet makes of it.
func (d deployed) files(t *testing.T, directory string) map[string]string {
	t.Helper()
	at := slices.IndexFunc(d.sidecar.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == directory })
	if at < 0 {
		t.Fatalf("nothing is mounted on %s", directory)
	}
	source := d.volume(t, d.sidecar.VolumeMounts[at].Name).ConfigMap
	if source == nil {
		t.Fatalf("%s is no ConfigMap", directory)
	}
	optional := source.Optional != nil && *source.Optional
	data, found := d.configMap(source.Name)
	if !found && !optional {
		t.Fatalf("there is no ConfigMap %s", source.Name)
	}
	if source.Items == nil {
		return data
	}
	files := map[string]string{}
	for _, item := range source.Items {
		text, there := data[item.Key]
		if !there && !optional {
			t.Errorf("ConfigMap %s has no key %s", source.Name, item.Key)
		}
		if there {
			files[item.Path] = text
		}
	}
	return files
}

func (d deployed) configMap(name string) (map[string]string, bool) {
	for _, o := range d.all {
		if c, is := o.(*corev1.ConfigMap); is && c.Name == name && c.Namespace == "kube-system" {
			return c.Data, true
		}
	}
	return nil, false
}

// mount is what a container finds at a path.
type mount struct {
	// from is the directory of the host, or another kind of volume.
	from     string
	readOnly bool
}

func (m mount) String() string { return fmt.Sprintf("%s (read-only: %t)", m.from, m.readOnly) }

// mounts are those of a container of the pod, by path.
func (d deployed) mounts(t *testing.T, c corev1.Container) map[string]mount {
	t.Helper()
	mounts := map[string]mount{}
	for _, m := range c.VolumeMounts {
		v := d.volume(t, m.Name)
		if m.SubPath != "" || m.SubPathExpr != "" {
			t.Errorf("%s is a part of a volume: it would not follow the volume", m.MountPath)
		}
		from := "another volume"
		switch {
		case v.HostPath != nil:
			from = path.Clean(v.HostPath.Path)
		case v.ConfigMap != nil:
			from = "ConfigMap"
		case v.EmptyDir != nil:
			from = "nothing"
		}
		mounts[m.MountPath] = mount{from, m.ReadOnly}
	}
	return mounts
}
