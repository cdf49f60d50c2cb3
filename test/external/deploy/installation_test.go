package deploy

import (
	"maps"
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

func ofCilium(kubernetes string, files ...string) rendering {
	return once(func(t *testing.T) []runtime.Object {
		return decode(t, ciliumText(t, kubernetes, append([]string{"values.yaml"}, files...)...))
	})
}

func ofKustomization(name string) rendering {
	return once(func(t *testing.T) []runtime.Object { return overlay(t, name, "") })
}

func ofOurChart(set ...string) rendering {
	return once(func(t *testing.T) []runtime.Object { return everything(t, set...) })
}

// installation is a way of deploying the daemon.
type installation struct {
	name    string
	objects rendering
	// daemonSet is the name of the DaemonSet with the daemon.
	daemonSet string
}

// installations has every installation of the default paths.
var installations = []installation{
	{"Cilium's chart, on the oldest Kubernetes", ofCilium(oldest), "cilium"},
	{"Cilium's chart", ofCilium(newest), "cilium"},
	{"Cilium's chart with the bridge", ofCilium(newest, "bridge.yaml"), "cilium"},
	{"Cilium's chart with whereabouts", ofCilium(newest, "bridge.yaml", "whereabouts.yaml"), "cilium"},
	{"Cilium's chart with a patched agent", ofCilium(newest, "agent/values.yaml"), "cilium"},
	{"Cilium's chart with the bridge, IPv6 alone", ofCilium(newest, "bridge.yaml", "ipv6.yaml"), "cilium"},
	{"Cilium's chart with a patched agent, IPv6 alone", ofCilium(newest, "agent/values.yaml", "ipv6.yaml"), "cilium"},
	{"the DaemonSet", ofKustomization("daemon"), "delegated-ipam"},
	{"the DaemonSet for pods", ofKustomization("pods"), "delegated-ipam"},
	{"the DaemonSet with the bridge", ofKustomization("with-bridge"), "delegated-ipam"},
	{"the DaemonSet with whereabouts", ofKustomization("whereabouts"), "delegated-ipam"},
	{"our chart", ofOurChart(), "delegated-ipam"},
	{"our chart, IPv6 alone", ofOurChart("daemon.options.enable-ipv4=false", "daemon.options.enable-ipv6=true"), "delegated-ipam"},
	{"our chart without the bridge", ofOurChart("bridge.enabled=false", "network.enabled=false"), "delegated-ipam"},
	{"our chart for pods", ofOurChart("daemon.installCNI=true", "bridge.enabled=false", "network.enabled=false"), "delegated-ipam"},
}

// ways has the installations with other paths of the host, and other plugins: TestValues shows their mounts.
var ways = []installation{
	{"azure-ipam", ofOurChart("@ways/azure-ipam.yaml"), "delegated-ipam"},
	{"calico-ipam", ofOurChart("@ways/calico-ipam.yaml"), "delegated-ipam"},
	{"calico-ipam on RKE2", ofOurChart("@ways/rke2.yaml", "@ways/calico-ipam.yaml"), "delegated-ipam"},
	{"whereabouts", ofOurChart("@ways/whereabouts.yaml"), "delegated-ipam"},
	{"CRI-O", ofOurChart("@ways/crio.yaml"), "delegated-ipam"},
	{"K3s", ofOurChart("@ways/k3s.yaml"), "delegated-ipam"},
	{"kind", ofOurChart("@ways/kind.yaml"), "delegated-ipam"},
}

// deployed is a rendered installation.
type deployed struct {
	all       []runtime.Object
	daemonSet string
	pod       corev1.PodSpec
	daemon    corev1.Container // of the daemon
}

// each runs a test for every installation.
func each(t *testing.T, test func(*testing.T, deployed)) {
	t.Helper()
	for _, i := range slices.Concat(installations, ways) {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			test(t, render(t, i))
		})
	}
}

func render(t *testing.T, i installation) deployed {
	t.Helper()
	return deployedIn(t, i.objects(t), i.daemonSet)
}

func deployedIn(t *testing.T, all []runtime.Object, daemonSet string) deployed {
	t.Helper()
	d := deployed{all: all, daemonSet: daemonSet, pod: named[*appsv1.DaemonSet](t, all, daemonSet).Spec.Template.Spec}
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

// files returns the files that the kubelet creates in a directory of a container from a mounted ConfigMap.
func (d deployed) files(t *testing.T, c corev1.Container, dir string) map[string]string {
	t.Helper()
	at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == dir })
	if at < 0 {
		return nil
	}
	source := d.volume(t, c.VolumeMounts[at].Name).ConfigMap
	if source == nil {
		t.Fatalf("%s is not a ConfigMap", dir)
	}
	data := d.data(source.Name)
	if source.Items == nil {
		return data
	}
	files := map[string]string{}
	for _, item := range source.Items {
		if text, has := data[item.Key]; has {
			files[item.Path] = text
		} else if source.Optional == nil || !*source.Optional {
			t.Errorf("the ConfigMap %s lacks %s", source.Name, item.Key)
		}
	}
	return files
}

// data returns the content of a ConfigMap.
func (d deployed) data(name string) map[string]string {
	for _, o := range d.all {
		if c, is := o.(*corev1.ConfigMap); is && c.Name == name {
			return c.Data
		}
	}
	return nil
}

// template returns the template of the CNI configuration. With Cilium's chart, a separate installation of our chart has it.
func (d deployed) template(t *testing.T) string {
	t.Helper()
	all := d.all
	if d.inChart() {
		all = everything(t, "daemon.enabled=false")
	}
	data := named[*corev1.ConfigMap](t, all, "delegated-ipam-network").Data
	return slices.Collect(maps.Values(data))[0]
}
