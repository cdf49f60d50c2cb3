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

// rendering returns the objects of an installation.
type rendering func(*testing.T) []runtime.Object

// once caches a rendering, whose objects must not be changed.
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

func ofChart(kubernetes string, files ...string) rendering {
	return once(func(t *testing.T) []runtime.Object {
		return chart(t, kubernetes, append([]string{daemonYAML}, files...)...)
	})
}

func ofKustomization(name string) rendering {
	return once(func(t *testing.T) []runtime.Object { return kustomized(t, name) })
}

func ofOurChart(set ...string) rendering {
	return once(func(t *testing.T) []runtime.Object { return daemonSets(t, set...) })
}

// installation is a way of deploying the daemon.
type installation struct {
	name    string
	objects rendering
	// daemonSet is the name of the DaemonSet with the daemon.
	daemonSet string
	// bridge means that the daemon serves the bridge.
	bridge bool
	// network is the directory of the CNI configuration, below /etc/delegated-ipam: "network" if it is
	// rendered for the node, "conflist" if one is for all nodes, empty if it is the node's own.
	network string
	// patched says that the agent has the patch of deploy/cilium/agent.
	patched bool
}

// installations has every installation.
var installations = []installation{
	{"the chart, on the oldest Kubernetes", ofChart(oldest), "cilium", false, "", false},
	{"the chart", ofChart(newest), "cilium", false, "", false},
	{"the chart with the bridge", ofChart(newest, overlayYAML), "cilium", true, "network", false},
	{"the chart with whereabouts", ofChart(newest, overlayYAML, sharedYAML), "cilium", true, "conflist", false},
	{"the chart with a patched agent", ofChart(newest, patchedYAML), "cilium", false, "", true},
	{"the chart with the bridge, IPv6 alone", ofChart(newest, overlayYAML, ipv6YAML), "cilium", true, "network", false},
	{"the chart with a patched agent, IPv6 alone", ofChart(newest, patchedYAML, ipv6YAML), "cilium", false, "", true},
	{"the DaemonSet", ofKustomization("daemon"), "delegated-ipam", false, "", false},
	{"the DaemonSet for pods", ofKustomization("pods"), "delegated-ipam", false, "", false},
	{"the DaemonSet with the bridge", ofKustomization("with-bridge"), "delegated-ipam", true, "network", false},
	{"the DaemonSet with whereabouts", ofKustomization("whereabouts"), "delegated-ipam", true, "conflist", false},
	{"our chart", ofOurChart(), "delegated-ipam", true, "network", false},
	{"our chart, IPv6 alone", ofOurChart("daemon.options.enable-ipv4=false", "daemon.options.enable-ipv6=true"), "delegated-ipam", true, "network", false},
	{"our chart without the bridge", ofOurChart("bridge.enabled=false", "network.enabled=false"), "delegated-ipam", false, "", false},
	{"our chart for pods", ofOurChart("daemon.installCNI=true", "bridge.enabled=false", "network.enabled=false"), "delegated-ipam", false, "", false},
}

// deployed is a rendered installation.
type deployed struct {
	installation
	all []runtime.Object
	pod corev1.PodSpec
	// daemon is the container of the daemon.
	daemon corev1.Container
}

// each runs a test for every installation.
func each(t *testing.T, test func(*testing.T, deployed)) {
	t.Helper()
	for _, i := range installations {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			test(t, render(t, i))
		})
	}
}

// eachInChart runs a test for every installation with the daemon in the pod of cilium-agent.
func eachInChart(t *testing.T, test func(*testing.T, deployed)) {
	t.Helper()
	each(t, func(t *testing.T, d deployed) {
		if d.inChart() {
			test(t, d)
		}
	})
}

func render(t *testing.T, i installation) deployed {
	t.Helper()
	d := deployed{installation: i, all: i.objects(t)}
	d.pod = named[*appsv1.DaemonSet](t, d.all, i.daemonSet).Spec.Template.Spec
	d.daemon = container(t, slices.Concat(d.pod.InitContainers, d.pod.Containers), "delegated-ipam")
	return d
}

// container returns the container with that name.
func container(t *testing.T, all []corev1.Container, name string) corev1.Container {
	t.Helper()
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	if at < 0 {
		t.Fatalf("no container is named %s", name)
	}
	return all[at]
}

// inChart reports whether the daemon is in the pod of cilium-agent.
func (d deployed) inChart() bool { return d.daemonSet == "cilium" }

// volume returns the pod's volume with that name.
func (d deployed) volume(t *testing.T, name string) corev1.Volume {
	t.Helper()
	at := slices.IndexFunc(d.pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if at < 0 {
		t.Fatalf("the pod lacks the volume %s", name)
	}
	return d.pod.Volumes[at]
}

// files returns the files that the kubelet creates in a directory from a mounted ConfigMap.
func (d deployed) files(t *testing.T, dir string) map[string]string {
	t.Helper()
	at := slices.IndexFunc(d.daemon.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == dir })
	if at < 0 {
		t.Fatalf("%s is not a mount", dir)
	}
	source := d.volume(t, d.daemon.VolumeMounts[at].Name).ConfigMap
	if source == nil {
		t.Fatalf("%s is not a ConfigMap", dir)
	}
	data, found := d.configMap(source.Name)
	files := map[string]string{}
	if source.Items == nil {
		files = data
	}
	for _, item := range source.Items {
		text, there := data[item.Key]
		if found = found && there; there {
			files[item.Path] = text
		}
	}
	if optional := source.Optional != nil && *source.Optional; !found && !optional {
		t.Errorf("the ConfigMap %s, or a key of it, is missing", source.Name)
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

// mount is the source of a mount.
type mount struct {
	// from is the directory of the host, or the kind of the volume.
	from     string
	readOnly bool
}

func (m mount) String() string { return fmt.Sprintf("%s (read-only: %t)", m.from, m.readOnly) }

// mounts returns the mounts of a container, by path.
func (d deployed) mounts(t *testing.T, c corev1.Container) map[string]mount {
	t.Helper()
	mounts := map[string]mount{}
	for _, m := range c.VolumeMounts {
		v := d.volume(t, m.Name)
		if m.SubPath != "" || m.SubPathExpr != "" {
			t.Errorf("%s is a subPath, which is not updated with the volume", m.MountPath)
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
