package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// hostPaths has each path of the host that a container of ours may mount, with the containers that may write to
// it. None has the agent's socket and state, or /var/lib with those of the whole node.
var hostPaths = map[string][]string{
	"/var/run/delegated-ipam":     {"delegated-ipam", "uninstall"},
	"/var/lib/delegated-ipam":     {"delegated-ipam", "uninstall"},
	"/run/delegated-ipam-network": {"network"},
	"/var/lib/cni/networks":       {"delegated-ipam"},
	"/opt/cni/bin":                {"install-cni", "remove-cni"},
	"/etc/cni/net.d":              nil,
	"/etc/machine-id":             nil,
	"/var/run/netns":              nil,
	runtimeSocket:                 nil, // a socket needs no write access
}

const runtimeSocket = "/run/containerd/containerd.sock"

// Each container of ours, in each installation, with every part and what the comments offer.
//
//evidence:operate/security it looks for the agent's socket and state, or for state of others in `/var/lib`
//evidence:operate/security it writes where the container runtime reads: `/opt/cni/bin`, `/etc/cni/net.d`, the rendered configuration
//evidence:operate/security it mounts a file system, or traces a process outside its container
func TestConfined(t *testing.T) {
	const socket = "daemon.runtimeSocket=" + runtimeSocket
	all := everything(t, allParts, "daemon.installCNI=true", socket)
	for _, name := range []string{"uninstall", "audit", "reclaim-job"} {
		all = append(all, kustomized(t, name)...)
	}
	all = append(all, chart(t, newest, uncommented(t, daemonYAML))...)
	for _, i := range installations {
		all = append(all, i.objects(t)...)
	}
	found := map[string]bool{}
	for _, o := range all {
		template, _ := podOf(o)
		d := deployed{pod: template.Spec}
		for _, c := range slices.Concat(d.pod.InitContainers, d.pod.Containers) {
			if strings.HasPrefix(c.Image, "ghcr.io/delegated-ipam/") {
				found[c.Name] = true
				wantConfined(t, d, c, o)
			}
		}
	}
	for _, name := range []string{"delegated-ipam", "delegated-ipam-runtime", "runtime", "bridge", "network", "install-cni", "release", "uninstall", "done", "ready", "audit", "lost-nodes", "reclaim", "prepare"} {
		if !found[name] {
			t.Errorf("no container %s was found among %v", name, found)
		}
	}
}

func wantConfined(t *testing.T, d deployed, c corev1.Container, in runtime.Object) {
	t.Helper()
	at := metadataOf(t, in).GetName() + "/" + c.Name
	for path, m := range d.mounts(t, c) {
		writers, allowed := hostPaths[m.from]
		if strings.HasPrefix(m.from, "/") && (!allowed || !m.readOnly && !slices.Contains(writers, c.Name)) {
			t.Errorf("%s mounts %s at %s; want one of %v", at, m, path, hostPaths)
		}
	}
	if _, mounted := d.mounts(t, c)[runtimeSocket]; mounted && !strings.HasSuffix(c.Name, "runtime") {
		t.Errorf("%s, where plugins may run, has the runtime's socket", at)
	}
	if c.LivenessProbe != nil {
		wantReplaced(t, c.LivenessProbe)
	}
	wantNoPrivileges(t, c)
	s := c.SecurityContext
	if s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || s.Privileged != nil {
		t.Errorf("%s: the security context is %v", at, s)
	}
	// Only Cilium's pod has a profile, Unconfined. Elsewhere the runtime's is the default, and a kubelet without
	// AppArmor refuses a pod that names one.
	var want *corev1.AppArmorProfile
	if metadataOf(t, in).GetName() == "cilium" {
		want = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	}
	if difference := diff.Diff(want, s.AppArmorProfile); difference != "" {
		t.Errorf("%s: the AppArmor profile differs:\n%s", at, difference)
	}
}

// offered matches the beginning of a line that the values have as a comment.
var offered = regexp.MustCompile(`(?m)^( *)# (extraContainers:|- |  )`)

// uncommented returns a copy of a file of values with what its comments offer.
func uncommented(t *testing.T, file string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "values.yaml")
	check.Must(t, os.WriteFile(copied, []byte(offered.ReplaceAllString(read(t, file), "$1$2")), 0o644))
	return copied
}

// The container of docs/install/pods.md is that of the chart, with the volume and the profile of Cilium's pod.
func TestInstallCNIInCiliumsPod(t *testing.T) {
	_, after, _ := strings.Cut(read(t, "../../../docs/install/pods.md"), "```yaml\n  - name: install-cni\n")
	text, _, _ := strings.Cut(after, "```")
	var got []corev1.Container
	check.Must(t, yaml.UnmarshalStrict([]byte("  - name: install-cni\n"+text), &got))
	pod := named[*appsv1.DaemonSet](t, daemonSets(t, "daemon.installCNI=true"), "delegated-ipam").Spec.Template.Spec
	want := container(t, pod.InitContainers, "install-cni")
	want.VolumeMounts[0].Name = "cni-path"
	want.SecurityContext.AppArmorProfile = render(t, installations[1]).daemon.SecurityContext.AppArmorProfile
	if difference := diff.Diff([]corev1.Container{want}, got); difference != "" {
		t.Errorf("chart and page differ:\n%s", difference)
	}
	if from := render(t, installations[1]).volume(t, "cni-path").HostPath; from == nil || from.Path != "/opt/cni/bin" {
		t.Errorf("the volume of the page is %v", from)
	}
}

// The real plugin is installed and removed with the commands of the containers, except for directories
// of the test.
func TestInstallCNI(t *testing.T) {
	set := []string{"daemon.installCNI=true", "hostPaths.cniBin=/k3s/bin", "hostPaths.cniConf=/k3s/net.d"}
	pod := named[*appsv1.DaemonSet](t, daemonSets(t, set...), "delegated-ipam").Spec.Template.Spec
	last := named[*appsv1.DaemonSet](t, hooks(t, "pre-delete", set...), "delegated-ipam-uninstall").Spec.Template.Spec
	n := harness.NewNode(t)
	n.PodsThrough(t, "05-cilium", harness.IPv4Only())
	host := map[string]string{"/k3s/bin": filepath.Join(n.Dir, "host"), "/k3s/net.d": n.ConfDir}
	check.Must(t, os.Mkdir(host["/k3s/bin"], 0o755))
	run := func(pod corev1.PodSpec, name string) (string, error) {
		c := container(t, pod.InitContainers, name)
		command := []string{filepath.Join(n.BinDir, c.Command[0])}
		for _, arg := range c.Command[1:] {
			if m, mounted := (deployed{pod: pod}).mounts(t, c)[arg]; mounted {
				arg = host[m.from]
			}
			command = append(command, arg)
		}
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		return string(out), err
	}
	if out, err := run(pod, "install-cni"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	installed := filepath.Join(host["/k3s/bin"], "delegated-ipam-cni")
	if info, err := os.Stat(installed); err != nil || info.Mode() != 0o755 {
		t.Errorf("installed %v, %v", info, err)
	}
	if out, err := run(last, "remove-cni"); err == nil || !strings.Contains(out, "05-cilium.conflist names it") {
		t.Errorf("removed in spite of a configuration: %v, %s", err, out)
	}
	n.WriteNetwork(t, "05-cilium", harness.IPv4Only())
	if out, err := run(last, "remove-cni"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(installed); !os.IsNotExist(err) {
		t.Errorf("%s exists: %v", installed, err)
	}
	for _, o := range daemonSets(t) {
		if d, is := o.(*appsv1.DaemonSet); is && len(d.Spec.Template.Spec.InitContainers) > 0 {
			t.Errorf("by default %s has init containers: %v", d.Name, d.Spec.Template.Spec.InitContainers)
		}
	}
}
