package deploy

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/cilium/cilium/pkg/ipam/option"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// The kubelet starts init containers in order; it continues, finally with the agent, when the
// startup probe of a restartable one has succeeded.
func TestChartStartOrder(t *testing.T) {
	eachInChart(t, func(t *testing.T, d deployed) {
		names := func(all []corev1.Container) (names []string) {
			for _, c := range all {
				names = append(names, c.Name)
			}
			return names
		}
		before, beside := names(d.pod.InitContainers), names(d.pod.Containers)
		if !slices.Contains(beside, "cilium-agent") || slices.Contains(beside, "delegated-ipam") {
			t.Errorf("the containers are %v", beside)
		}
		// The plugins must be installed before, and only the agent waits for the daemon.
		if got := before[len(before)-1]; got != "delegated-ipam" || !slices.Contains(before, "install-cni-binaries") {
			t.Errorf("the init containers are %v; want the daemon last", before)
		}
		if p := d.daemon.RestartPolicy; p == nil || *p != corev1.ContainerRestartPolicyAlways {
			t.Errorf("the restart policy is %v; the agent would wait for the daemon to end", p)
		}
		if d.daemon.StartupProbe == nil {
			t.Error("without a startup probe the agent does not wait for the socket")
		}
	})
}

func TestChartSettings(t *testing.T) {
	eachInChart(t, func(t *testing.T, d deployed) {
		config, _ := d.configMap("cilium-config")
		want := map[string]string{
			"ipam": option.IPAMDelegatedPlugin, "enable-endpoint-health-checking": "false", "local-router-ipv4": "169.254.23.0",
			"enable-endpoint-routes": "true",
			"enable-envoy-config":    "", // a stock agent refuses it in delegated-plugin mode
			socketOption:             "",
		}
		if d.bridge {
			want["ipam"] = option.IPAMCRD
		}
		if d.patched {
			want[socketOption] = client.DefaultSocket
			if got := d.files(t, "/etc/delegated-ipam/options")["owners"]; got != "router,health,ingress" {
				t.Errorf("owners is %q; want those of the agent", got)
			}
		}
		if d.bridge || d.patched {
			want["enable-endpoint-health-checking"], want["local-router-ipv4"] = "true", ""
		}
		for key := range want {
			if config[key] != want[key] {
				t.Errorf("%s is %q, want %q", key, config[key], want[key])
			}
		}
		// In a mode without a range for each node the agent panics if iptables masquerading needs that
		// range (newManager in its pkg/datapath/iptables).
		if config["enable-ipv4-masquerade"] == "true" && config["egress-masquerade-interfaces"] == "" {
			t.Errorf("mode %s lacks egress-masquerade-interfaces", config["ipam"])
		}
		// A misspelt setting would be ignored silently.
		mounted := slices.Concat(d.volume(t, "delegated-ipam-options").ConfigMap.Items, d.volume(t, "delegated-ipam-conflist").ConfigMap.Items)
		for key := range config {
			if strings.HasPrefix(key, "delegated-ipam-") && !(d.patched && key == socketOption) &&
				!slices.ContainsFunc(mounted, func(item corev1.KeyToPath) bool { return item.Key == key }) {
				t.Errorf("%s is not mounted", key)
			}
		}
		// A patched agent has the directory of the socket, which it need not change.
		dir := path.Dir(client.DefaultSocket)
		agent, daemon := d.mounts(t, container(t, d.pod.Containers, "cilium-agent")), d.mounts(t, d.daemon)
		if got, has := agent[dir]; has != d.patched || has && got != (mount{daemon[dir].from, true}) {
			t.Errorf("the agent has %v at %s, the daemon %v", got, dir, daemon[dir])
		}
	})
}

// The values must change nothing in the chart's objects besides the daemon and the settings.
func TestChartOtherwiseUnchanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values []string
		// settings are the settings of agent and operator that the IPAM mode changes.
		settings []string
	}{
		{"the daemon", []string{daemonYAML}, []string{
			"cluster-pool-ipv4-cidr", "cluster-pool-ipv4-mask-size", "egress-masquerade-interfaces", "enable-endpoint-health-checking",
			"enable-endpoint-routes", "ipam", "ipv4-native-routing-cidr", "local-router-ipv4", "routing-mode",
		}},
		{"the daemon of the bridge", []string{daemonYAML, overlayYAML}, []string{
			"cluster-pool-ipv4-cidr", "cluster-pool-ipv4-mask-size", "egress-masquerade-interfaces", "enable-endpoint-routes", "ipam",
			"ipam-cilium-node-update-rate", "ipv4-native-routing-cidr", "local-router-ipv4", "routing-mode",
		}},
		{"the daemon of a patched agent", []string{daemonYAML, patchedYAML}, []string{
			"cluster-pool-ipv4-cidr", "cluster-pool-ipv4-mask-size", "egress-masquerade-interfaces", "enable-endpoint-routes", "ipam",
			"ipv4-native-routing-cidr", "local-router-ipv4", "routing-mode",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, after := byName(t, chart(t, newest)), byName(t, chart(t, newest, c.values...))
			if got, want := slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)); !slices.Equal(got, want) {
				t.Fatalf("the objects are %v; without the values %v", got, want)
			}
			for name, object := range after {
				switch object := object.(type) {
				case *corev1.ConfigMap:
					old := before[name].(*corev1.ConfigMap)
					if object.Name != "cilium-config" {
						break
					}
					if got := changed(old.Data, object.Data); !slices.Equal(got, c.settings) {
						t.Errorf("the changed settings are %q; want %q", got, c.settings)
					}
					object.Data = old.Data
				case *appsv1.DaemonSet:
					removeDaemon(&object.Spec.Template.Spec)
				}
				for _, o := range []runtime.Object{object, before[name]} {
					removeChecksum(o)
				}
				if d := diff.Diff(before[name], object); d != "" {
					t.Errorf("the values change %s:\n%s", name, d)
				}
			}
		})
	}
}

// changed returns the keys with different values, without the options of the daemon.
func changed(before, after map[string]string) (keys []string) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		old, was := before[key]
		value, is := after[key]
		if (was != is || old != value) && !strings.HasPrefix(key, "delegated-ipam-") {
			keys = append(keys, key)
		}
	}
	return keys
}

// byName returns the objects by kind, namespace and name.
func byName(t *testing.T, all []runtime.Object) map[string]runtime.Object {
	t.Helper()
	objects := map[string]runtime.Object{}
	for _, o := range all {
		m := metadataOf(t, o)
		objects[o.GetObjectKind().GroupVersionKind().Kind+" "+m.GetNamespace()+"/"+m.GetName()] = o
	}
	return objects
}

// removeDaemon removes the daemon, if there is one, and restores the chart's grace period.
func removeDaemon(pod *corev1.PodSpec) {
	ours := func(name string) bool { return strings.HasPrefix(name, "delegated-ipam") }
	before := len(pod.InitContainers)
	pod.InitContainers = slices.DeleteFunc(pod.InitContainers, func(c corev1.Container) bool { return ours(c.Name) })
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool { return ours(v.Name) })
	for _, all := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range all { // the agent, and those with the same mounts
			all[i].VolumeMounts = slices.DeleteFunc(all[i].VolumeMounts, func(m corev1.VolumeMount) bool { return ours(m.Name) })
		}
	}
	if len(pod.InitContainers) < before {
		pod.TerminationGracePeriodSeconds = new(int64(1))
	}
}

// configChecksum is the annotation that makes the chart replace the agent's pods when cilium-config
// changes.
const configChecksum = "cilium.io/cilium-configmap-checksum"

// removeChecksum removes the checksum of the configuration.
func removeChecksum(o runtime.Object) {
	if d, is := o.(*appsv1.DaemonSet); is {
		delete(d.Spec.Template.Annotations, configChecksum)
	}
}
