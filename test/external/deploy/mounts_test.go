package deploy

import (
	"os"
	"os/exec"
	"path"
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

// eachContainer calls a function for each container of ours, in each installation, with every part and what the comments offer.
func eachContainer(t *testing.T, f func(*testing.T, deployed, corev1.Container)) {
	t.Helper()
	renderings := []rendering{
		ofOurChart(allParts, "daemon.installCNI=true", "daemon.runtimeSocket="+runtimeSocket), ofKustomization("reclaim"),
		ofKustomization("uninstall"), ofKustomization("audit"),
		func(t *testing.T) []runtime.Object {
			return decode(t, ciliumText(t, newest, uncommented(t, "values.yaml")))
		},
	}
	for _, i := range installations {
		renderings = append(renderings, i.objects)
	}
	for _, objects := range renderings {
		d := deployed{all: objects(t)}
		for _, o := range d.all {
			template, _ := podOf(o)
			d.daemonSet, d.pod = metadataOf(t, o).GetName(), template.Spec
			for _, c := range slices.Concat(d.pod.InitContainers, d.pod.Containers) {
				if strings.HasPrefix(c.Image, "ghcr.io/delegated-ipam/") {
					f(t, d, c)
				}
			}
		}
	}
}

// Each container of ours is confined.
//
//evidence:operate/security it looks for the agent's socket and state, or for state of others in `/var/lib`
//evidence:operate/security it writes where the container runtime reads: `/opt/cni/bin`, `/etc/cni/net.d`, the rendered configuration
//evidence:operate/security it mounts a file system, or traces a process outside its container
func TestConfined(t *testing.T) {
	found := map[string]bool{}
	eachContainer(t, func(t *testing.T, d deployed, c corev1.Container) {
		found[c.Name] = true
		wantConfined(t, d, c)
	})
	for _, name := range []string{"delegated-ipam", "delegated-ipam-runtime", "runtime", "bridge", "network", "install-cni", "release", "uninstall", "done", "ready", "audit", "lost-nodes", "reclaim", "prepare"} {
		if !found[name] {
			t.Errorf("no container %s was found among %v", name, found)
		}
	}
}

func wantConfined(t *testing.T, d deployed, c corev1.Container) {
	t.Helper()
	at := d.daemonSet + "/" + c.Name
	for _, m := range c.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" {
			t.Errorf("%s: %s is a subPath, which is not updated with the volume", at, m.MountPath)
		}
		host := d.volume(t, m.Name).HostPath
		if host == nil {
			continue
		}
		if writers, allowed := hostPaths[path.Clean(host.Path)]; !allowed || !m.ReadOnly && !slices.Contains(writers, c.Name) {
			t.Errorf("%s mounts %s at %s; want one of %v", at, host.Path, m.MountPath, hostPaths)
		}
		if host.Path == runtimeSocket && !strings.HasSuffix(c.Name, "runtime") {
			t.Errorf("%s, where plugins may run, has the runtime's socket", at)
		}
	}
	if p := c.LivenessProbe; p != nil && p.PeriodSeconds*p.FailureThreshold+p.TimeoutSeconds+int32(*p.TerminationGracePeriodSeconds) > 100 {
		t.Errorf("%s: a hung process is not replaced within 100 s: %v", at, p)
	}
	want := corev1.SecurityContext{
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	// Only Cilium's pod has a profile, Unconfined. Elsewhere the runtime's is the default, and a kubelet without
	// AppArmor refuses a pod that names one.
	if d.inChart() {
		want.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	}
	got := *c.SecurityContext
	got.RunAsUser, got.RunAsGroup, got.RunAsNonRoot, got.SELinuxOptions = nil, nil, nil, nil
	if difference := diff.Diff(want, got); difference != "" {
		t.Errorf("%s: the security context differs:\n%s", at, difference)
	}
}

// offered matches the beginning of a line that the values have as a comment.
var offered = regexp.MustCompile(`(?m)^( *)# (extraContainers:|- |  )`)

// uncommented returns a copy of a file of values with what its comments offer.
func uncommented(t *testing.T, file string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "values.yaml")
	check.Must(t, os.WriteFile(copied, []byte(offered.ReplaceAllString(read(t, filepath.Join("../../../deploy/cilium", file)), "$1$2")), 0o644))
	return copied
}

// The container of docs/install/pods.md is that of the chart, with the volume and the profile of Cilium's pod.
func TestInstallCNIInCiliumsPod(t *testing.T) {
	_, after, _ := strings.Cut(read(t, "../../../docs/install/pods.md"), "```yaml\n  - name: install-cni\n")
	text, _, _ := strings.Cut(after, "```")
	var got []corev1.Container
	check.Must(t, yaml.UnmarshalStrict([]byte("  - name: install-cni\n"+text), &got))
	pod := named[*appsv1.DaemonSet](t, everything(t, "daemon.installCNI=true"), "delegated-ipam").Spec.Template.Spec
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
	pod := named[*appsv1.DaemonSet](t, everything(t, set...), "delegated-ipam").Spec.Template.Spec
	last := named[*appsv1.DaemonSet](t, everything(t, set...), "delegated-ipam-uninstall").Spec.Template.Spec
	n := harness.NewNode(t)
	n.PodsThrough(t, "05-cilium", harness.IPv4Only())
	host := map[string]string{"/k3s/bin": filepath.Join(n.Dir, "host"), "/k3s/net.d": n.ConfDir}
	check.Must(t, os.Mkdir(host["/k3s/bin"], 0o755))
	run := func(pod corev1.PodSpec, name string) (string, error) {
		c := container(t, pod.InitContainers, name)
		args := slices.Clone(c.Command[1:])
		for _, m := range c.VolumeMounts {
			if at := slices.Index(args, m.MountPath); at >= 0 {
				args[at] = host[deployed{pod: pod}.volume(t, m.Name).HostPath.Path]
			}
		}
		out, err := exec.Command(filepath.Join(n.BinDir, c.Command[0]), args...).CombinedOutput()
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
}
