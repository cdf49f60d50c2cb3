package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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
