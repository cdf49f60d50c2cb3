package kubernetes

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// install applies the manifests on nodes that have never had them, and waits until all is ready.
func (tb *testbed) install(t *testing.T) {
	t.Helper()
	tb.record(t, "from the manifests to ready nodes, DaemonSets and agents", tb.apply(t, tb.manifests(t)))
}

func (tb *testbed) testFresh(t *testing.T) {
	tb.waitRecords(t, "of the agents")
	var ranges []netip.Prefix
	for _, n := range tb.nodes {
		cidrs := tb.mustPodCIDRs(t, n)
		for _, cidr := range cidrs {
			check.Must(t, n.checkRendered(`"`+cidr.String()+`"`))
			for _, other := range ranges {
				if cidr.Overlaps(other) {
					t.Errorf("%s of %s overlaps with %s of another node", cidr, n.name, other)
				}
			}
		}
		ranges = append(ranges, cidrs...)
	}
	events, err := listOf[corev1.Event](t.Context(), tb.Resource("", "v1", "events"), metav1.ListOptions{FieldSelector: "type=Warning"})
	check.Must(t, err)
	for _, e := range events {
		if strings.HasPrefix(e.Source.Component+e.ReportingController, "delegated-ipam") {
			t.Errorf("a fresh cluster has a Warning of %s about %s: %s: %s", e.Source.Component, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// manifests returns the directory of the manifests under test. With IPv6 it is a kustomization over
// them that sets the option.
func (tb *testbed) manifests(t *testing.T) string {
	t.Helper()
	if !tb.dual {
		return tb.mode.manifests
	}
	const kustomization = `configMapGenerator:
  - name: delegated-ipam
    namespace: kube-system
    behavior: merge
    literals: [enable-ipv6=true]
`
	overlay, err := filepath.Rel(tb.root, tb.writeOverlay(t, "dual", tb.mode.manifests, kustomization, nil))
	check.Must(t, err)
	return overlay
}

// writeOverlay writes a kustomization over a directory of the repository, and other files beside it, as
// docs/install/bridge.md describes it ("As DaemonSets"). It returns the directory.
func (tb *testbed) writeOverlay(t *testing.T, name, base, kustomization string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(tb.dir, name)
	check.Must(t, os.MkdirAll(dir, 0o755))
	relative, err := filepath.Rel(dir, filepath.Join(tb.root, base)) // kustomize takes no absolute path
	check.Must(t, err)
	kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [" + relative + "]\n" + kustomization
	check.Must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o644))
	for file, content := range files {
		check.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644))
	}
	return dir
}

func (tb *testbed) apply(t *testing.T, dir string) time.Duration {
	t.Helper()
	begin := time.Now()
	tb.mustKubectl(t, "apply", "-k", dir)
	tb.waitHealthy(t, dir+" to be rolled out")
	return time.Since(begin)
}

func (tb *testbed) generations(t *testing.T) map[string]int64 {
	t.Helper()
	sets, err := listOf[appsv1.DaemonSet](t.Context(), tb.Resource("apps", "v1", "daemonsets").Namespace(systemNamespace), metav1.ListOptions{})
	check.Must(t, err)
	all := map[string]int64{}
	for _, s := range sets {
		all[s.Name] = s.Status.ObservedGeneration
	}
	return all
}

const changedLabel = "delegated-ipam-test=changed"

// testConfigMap changes an option and the template, and back: both are ConfigMaps.
func (tb *testbed) testConfigMap(t *testing.T) {
	tb.ensurePods(t)
	m := tb.startMonitor(t)
	before := tb.generations(t)
	text, err := os.ReadFile(filepath.Join(tb.root, "deploy", "kubernetes", "base", "network", "pods.conflist"))
	check.Must(t, err)
	const old, changed = `"ranges": "${ranges}"`, `"ranges": "${ranges}", "routes": [{"dst": "0.0.0.0/0"}]`
	if !strings.Contains(string(text), old) {
		t.Fatalf("the template is %s; expected %s", text, old)
	}
	overlay := tb.writeOverlay(t, "changed", tb.manifests(t), `generatorOptions:
  labels: {`+strings.Replace(changedLabel, "=", ": ", 1)+`}
configMapGenerator:
  - name: delegated-ipam
    namespace: kube-system
    behavior: merge
    literals: [log-level=debug]
  - name: delegated-ipam-network
    namespace: kube-system
    behavior: replace
    files: [pods.conflist]
`, map[string]string{"pods.conflist": strings.Replace(string(text), old, changed, 1)})
	tb.record(t, "an option and the template changed: until both are in use on both nodes", tb.apply(t, overlay))
	for name, generation := range tb.generations(t) {
		if replaced := generation != before[name]; replaced != (name != "delegated-ipam-bridge") {
			t.Errorf("the pods of %s were replaced: %v; its ConfigMap was changed: %v", name, replaced, !replaced)
		}
	}
	tb.wantDebugLogs(t)
	for _, n := range tb.nodes {
		cluster.MustEventually(t, "the changed template on "+n.name, convergeTimeout, func() error { return n.checkRendered(`"routes"`) })
	}
	tb.apply(t, tb.manifests(t))
	// "kubectl apply" leaves the ConfigMaps of the changed kustomization.
	tb.mustKubectl(t, "--namespace", systemNamespace, "delete", "configmap", "--selector="+changedLabel)
	tb.waitRecords(t, "after the changes")
	tb.checkConnectivity(t)
	m.stop(t)
}

func (tb *testbed) wantDebugLogs(t *testing.T) {
	t.Helper()
	for _, n := range tb.nodes {
		if out := tb.mustKubectl(t, "--namespace", systemNamespace, "logs", tb.daemonPod(t, n).Name); !strings.Contains(out, "level=debug") {
			t.Errorf("the daemon of %s does not log with log-level=debug", n.name)
		}
	}
}

const nextTag = "next"

// testUpgrade replaces the images by the same ones with another tag, and goes back.
func (tb *testbed) testUpgrade(t *testing.T) {
	tb.ensurePods(t)
	m := tb.startMonitor(t)
	for _, n := range tb.nodes {
		for _, image := range []string{"delegated-ipam", "delegated-ipam-bridge"} {
			name := "ghcr.io/delegated-ipam/" + image + ":"
			_, err := n.command(t.Context(), "ctr", "--namespace=k8s.io", "images", "tag", "--force", name+"local", name+nextTag)
			check.Must(t, err)
		}
	}
	overlay := tb.writeOverlay(t, "upgrade", tb.manifests(t), `images:
  - {name: ghcr.io/delegated-ipam/delegated-ipam, newTag: `+nextTag+`}
  - {name: ghcr.io/delegated-ipam/delegated-ipam-bridge, newTag: `+nextTag+`}
`, nil)
	tb.record(t, "from one image tag to the next on both nodes", tb.apply(t, overlay))
	tb.checkImages(t, nextTag)
	tb.waitRecords(t, "after the upgrade")
	tb.checkConnectivity(t)
	tb.apply(t, tb.manifests(t))
	tb.checkImages(t, "local")
	tb.waitRecords(t, "after the way back")
	m.stop(t)
}

func (tb *testbed) checkImages(t *testing.T, tag string) {
	t.Helper()
	out := tb.mustKubectl(t, "--namespace", systemNamespace, "get", "pods", "--output=jsonpath={.items[*].spec.containers[*].image}")
	for image := range strings.FieldsSeq(out) {
		if !strings.HasSuffix(image, ":"+tag) {
			t.Errorf("a pod has the image %s; want tag %s", image, tag)
		}
	}
}

func (tb *testbed) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Run(tb.admin(t.Context(), "helm", args...))
	check.Must(t, err)
	return out
}

// chartFlags names the chart, its release and the images, whose tag is otherwise the chart's version.
func (tb *testbed) chartFlags(more ...string) []string {
	values := "daemon.image.tag=local,bridge.image.tag=local"
	return append([]string{
		"delegated-ipam", "deploy/chart", "--namespace", systemNamespace, "--set", values,
		"--set-string", "daemon.options.enable-ipv6=" + strconv.FormatBool(tb.dual),
	}, more...)
}

// testHelm installs, upgrades, tests and removes the chart on the cluster that the manifests have left.
func (tb *testbed) testHelm(t *testing.T) {
	if len(tb.generations(t)) > 0 {
		tb.testUninstall(t)
	}
	tb.helm(t, "lint", "deploy/chart", "--strict")
	tb.helm(t, append([]string{"upgrade", "--install"}, tb.chartFlags()...)...)
	tb.waitHealthy(t, "the chart to be installed")
	tb.checkPods(t, "after the installation by Helm")

	m := tb.startMonitor(t)
	tb.helm(t, append([]string{"upgrade"}, tb.chartFlags("--set", "daemon.options.log-level=debug,bridge.options.log-level=debug")...)...)
	tb.waitHealthy(t, "the upgrade to be rolled out")
	tb.wantDebugLogs(t)
	tb.waitRecords(t, "after the upgrade by Helm")
	m.stop(t)

	tb.helm(t, "test", "delegated-ipam", "--namespace", systemNamespace, "--timeout", "5m")
	// While pods have addresses of the pools, nothing is removed.
	if out, err := cluster.Run(tb.admin(t.Context(), "helm", "uninstall", "delegated-ipam", "--namespace", systemNamespace, "--timeout", "5m")); err == nil {
		t.Fatalf("uninstalled beside running pods: %s", out)
	}
	log := tb.mustKubectl(t, "--namespace", systemNamespace, "logs", "job/delegated-ipam-uninstall-prepare")
	if !strings.Contains(log, "belong to pods") {
		t.Errorf("the log of the refusal is %s", log)
	}
	tb.waitHealthy(t, "the bridges after the refusal")
	tb.helmUninstall(t)
}

func (tb *testbed) helmUninstall(t *testing.T) {
	t.Helper()
	tb.removePods(t)
	begin := time.Now()
	tb.helm(t, "uninstall", "delegated-ipam", "--namespace", systemNamespace, "--wait", "--timeout", "15m")
	tb.record(t, "helm uninstall, which releases the addresses of both nodes", time.Since(begin))
	tb.checkNothingLeft(t)
}

// releaseVersion is that of the release that "make cluster-test" builds.
const releaseVersion = "0.0.0-snapshot"

// testRelease installs a release with its files alone: images, chart and plain manifests.
func (tb *testbed) testRelease(t *testing.T) {
	files := filepath.Join(tb.built, "release", "v"+releaseVersion)
	dir := t.TempDir() // outside of the repository
	check.Must(t, os.CopyFS(dir, os.DirFS(files)))
	inDir := func(program string, args ...string) {
		t.Helper()
		cmd := tb.admin(t.Context(), program, args...)
		cmd.Dir = dir
		_, err := cluster.Run(cmd)
		check.Must(t, err)
	}
	sums := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = dir
	_, err := cluster.Run(sums)
	check.Must(t, err)
	for _, n := range tb.nodes {
		for _, archive := range []string{"delegated-ipam-image.tar", "delegated-ipam-bridge-image.tar"} {
			_, err := n.command(t.Context(), "ctr", "--namespace=k8s.io", "images", "import", filepath.Join(files, archive))
			check.Must(t, err)
		}
	}
	wantImages := func() {
		t.Helper()
		images := tb.mustKubectl(t, "--namespace", systemNamespace, "get", "daemonsets", "--output=jsonpath={.items[*].spec.template.spec.containers[*].image}")
		for image := range strings.FieldsSeq(images) {
			if strings.Contains(image, "delegated-ipam") && !strings.Contains(image, ":v"+releaseVersion+"@sha256:") {
				t.Errorf("%s runs; want the image of the release", image)
			}
		}
	}

	tb.removePools(t)
	inDir("helm", "install", "delegated-ipam", "delegated-ipam-"+releaseVersion+".tgz", "--namespace", systemNamespace,
		"--set-string", "daemon.options.enable-ipv6="+strconv.FormatBool(tb.dual))
	tb.waitHealthy(t, "the chart of the release to be installed")
	wantImages()
	tb.checkPods(t, "after the installation of the release's chart")
	inDir("helm", "test", "delegated-ipam", "--namespace", systemNamespace, "--timeout", "5m")
	tb.helmUninstall(t)
	if tb.dual {
		return // the plain manifests are for IPv4
	}

	tb.removePools(t)
	inDir("kubectl", "apply", "--filename", "kubernetes-with-bridge.yaml")
	tb.waitHealthy(t, "the manifests of the release to be installed")
	wantImages()
	tb.checkPods(t, "after the installation of the release's manifests")
	tb.removePods(t)
	inDir("kubectl", "delete", "--filename", "kubernetes-bridge.yaml", "--ignore-not-found")
	inDir("kubectl", "apply", "--filename", "kubernetes-uninstall.yaml")
	tb.waitUninstalled(t)
	inDir("kubectl", "delete", "--filename", "kubernetes-uninstall.yaml")
	inDir("kubectl", "delete", "--filename", "kubernetes-with-bridge.yaml", "--ignore-not-found")
	tb.checkNothingLeft(t)
}

// waitUninstalled waits as docs/install/bridge.md does until all addresses are released, and then until the files
// of the programs are removed.
func (tb *testbed) waitUninstalled(t *testing.T) {
	t.Helper()
	// "kubectl wait" fails before the first pod exists.
	cluster.MustEventually(t, "the addresses to be released", convergeTimeout, func() error {
		_, err := tb.kubectl(t.Context(), "--namespace", systemNamespace, "wait", "pod", "--selector=app.kubernetes.io/name=delegated-ipam-uninstall",
			"--timeout=9m", "--for=jsonpath={.status.initContainerStatuses[1].state.terminated.reason}=Completed")
		return err
	})
	tb.mustKubectl(t, "--namespace", systemNamespace, "delete", "daemonset", "delegated-ipam", "delegated-ipam-network")
	tb.mustKubectl(t, "--namespace", systemNamespace, "rollout", "status", "daemonset", "delegated-ipam-uninstall", "--timeout=10m")
}

// testUninstall follows docs/install/bridge.md, "Uninstall".
func (tb *testbed) testUninstall(t *testing.T) {
	tb.removePods(t)
	begin := time.Now()
	tb.mustKubectl(t, "delete", "-k", "deploy/kubernetes/base/bridge")
	tb.mustKubectl(t, "apply", "-k", "deploy/kubernetes/base/uninstall")
	tb.waitUninstalled(t)
	tb.mustKubectl(t, "delete", "-k", "deploy/kubernetes/base/uninstall")
	tb.mustKubectl(t, "delete", "-k", tb.manifests(t), "--ignore-not-found")
	tb.record(t, "from the first command of docs/install/bridge.md to the last", time.Since(begin))
	tb.checkNothingLeft(t)
	tb.removePools(t)
}

// removePools deletes the CiliumNodes, whose pools the uninstall leaves, and restarts the agents, which
// create them again.
func (tb *testbed) removePools(t *testing.T) {
	t.Helper()
	for _, n := range tb.nodes {
		check.Must(t, tb.CiliumNodes().Delete(t.Context(), n.name, metav1.DeleteOptions{}))
		agent := daemon("cilium-agent")
		n.waitReplaced(t, agent, n.signal(t, agent, syscall.SIGTERM))
	}
}

func (tb *testbed) removePods(t *testing.T) {
	t.Helper()
	tb.mustKubectl(t, "--namespace", podNamespace, "delete", "deployment", "stable", "--ignore-not-found")
	cluster.MustEventually(t, "the pods to be deleted", convergeTimeout, func() error {
		list, err := tb.Pods(podNamespace).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(list.Items))
		}
		return err
	})
}

// checkNothingLeft wants neither leases, files nor processes on the nodes, nor objects in the cluster.
func (tb *testbed) checkNothingLeft(t *testing.T) {
	t.Helper()
	for _, n := range tb.nodes {
		leases, err := n.leases()
		check.Must(t, err)
		if len(leases) > 0 {
			t.Errorf("%s: host-local still has %v", n.name, leases)
		}
		// The images remain in the runtime, and empty directories: a pod can empty a directory that it
		// mounts, but not remove it.
		paths, err := n.command(t.Context(), "find", "/etc", "/run", "/var/lib", "-xdev", "-name", "*delegated-ipam*", "-not", "-path", "*/containerd/*",
			"-not", "(", "-type", "d", "-empty", ")")
		check.Must(t, err)
		if paths != "" {
			t.Errorf("%s: left are %s", n.name, strings.Join(strings.Fields(paths), ", "))
		}
		cluster.MustEventually(t, "the processes to end", convergeTimeout, func() error {
			ours, err := n.processes(func(args []string) bool { return strings.Contains(args[0], "delegated-ipam") })
			if err == nil && len(ours) > 0 {
				err = fmt.Errorf("%s still runs %v", n.name, ours)
			}
			return err
		})
	}
	cluster.MustEventually(t, "the objects of the cluster to be deleted", convergeTimeout, func() error {
		if left := tb.ownObjects(t); len(left) > 0 {
			return fmt.Errorf("left in the cluster: %v", left)
		}
		return nil
	})
}

func (tb *testbed) ownObjects(t *testing.T) []string {
	kinds := strings.Fields(tb.mustKubectl(t, "api-resources", "--verbs=list", "--output=name"))
	var listed []string
	for _, kind := range kinds {
		if !strings.HasPrefix(kind, "events") { // the API server deletes them after an hour
			listed = append(listed, kind)
		}
	}
	var left []string
	for object := range strings.FieldsSeq(tb.mustKubectl(t, "get", strings.Join(listed, ","), "--all-namespaces", "--output=name", "--ignore-not-found")) {
		if strings.Contains(object, "delegated-ipam") {
			left = append(left, object)
		}
	}
	return left
}
