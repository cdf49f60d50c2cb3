package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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
	harness.Must(t, err)
	return overlay
}

// writeOverlay writes a kustomization over a directory of the repository, and other files beside it, as
// docs/install/bridge.md describes it ("As DaemonSets"). It returns the directory.
func (tb *testbed) writeOverlay(t *testing.T, name, base, kustomization string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(tb.dir, name)
	harness.Must(t, os.MkdirAll(dir, 0o755))
	relative, err := filepath.Rel(dir, filepath.Join(tb.root, base)) // kustomize takes no absolute path
	harness.Must(t, err)
	kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [" + relative + "]\n" + kustomization
	harness.Must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o644))
	for file, content := range files {
		harness.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644))
	}
	return dir
}

// apply applies a kustomization, and waits until the cluster has it and is healthy.
func (tb *testbed) apply(t *testing.T, dir string) time.Duration {
	t.Helper()
	begin := time.Now()
	tb.mustKubectl(t, "apply", "-k", dir)
	tb.waitHealthy(t, dir+" to be rolled out")
	return time.Since(begin)
}

// generations returns the generation of each DaemonSet's pods.
func (tb *testbed) generations(t *testing.T) map[string]int64 {
	t.Helper()
	sets, err := listOf[appsv1.DaemonSet](t.Context(), tb.Resource("apps", "v1", "daemonsets").Namespace(systemNamespace), metav1.ListOptions{})
	harness.Must(t, err)
	all := map[string]int64{}
	for _, s := range sets {
		all[s.Name] = s.Status.ObservedGeneration
	}
	return all
}

// changedLabel is the label of the ConfigMaps of testConfigMap.
const changedLabel = "delegated-ipam-test=changed"

// testConfigMap changes an option and the template, and back: both are ConfigMaps.
func (tb *testbed) testConfigMap(t *testing.T) {
	tb.ensurePods(t)
	m := tb.startMonitor(t)
	before := tb.generations(t)
	text, err := os.ReadFile(filepath.Join(tb.root, "deploy", "kubernetes", "base", "network", "pods.conflist"))
	harness.Must(t, err)
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
	for _, n := range tb.nodes {
		if out := tb.mustKubectl(t, "--namespace", systemNamespace, "logs", tb.sidecarPod(t, n).Name); !strings.Contains(out, "level=debug") {
			t.Errorf("the sidecar of %s does not log with log-level=debug", n.name)
		}
		cluster.MustEventually(t, "the changed template on "+n.name, convergeTimeout, func() error { return n.checkRendered(`"routes"`) })
	}
	tb.apply(t, tb.manifests(t))
	// "kubectl apply" leaves the ConfigMaps of the changed kustomization.
	tb.mustKubectl(t, "--namespace", systemNamespace, "delete", "configmap", "--selector="+changedLabel)
	tb.waitRecords(t, "after the changes")
	tb.checkConnectivity(t)
	m.stop(t)
}

// nextTag is another tag of the same images.
const nextTag = "next"

// testUpgrade replaces the images by the same ones with another tag, and goes back.
func (tb *testbed) testUpgrade(t *testing.T) {
	tb.ensurePods(t)
	m := tb.startMonitor(t)
	for _, n := range tb.nodes {
		for _, image := range []string{"delegated-ipam", "delegated-ipam-bridge"} {
			name := "docker.io/library/" + image + ":"
			_, err := n.command(t.Context(), "ctr", "--namespace=k8s.io", "images", "tag", "--force", name+"local", name+nextTag)
			harness.Must(t, err)
		}
	}
	overlay := tb.writeOverlay(t, "upgrade", tb.manifests(t), `images:
  - {name: delegated-ipam, newTag: `+nextTag+`}
  - {name: delegated-ipam-bridge, newTag: `+nextTag+`}
`, nil)
	tb.record(t, "from one image tag to the next on both nodes", tb.apply(t, overlay))
	tb.checkImages(t, nextTag)
	tb.waitRecords(t, "after the upgrade")
	tb.record(t, "HTTP requests between the pods, which kept their addresses", tb.checkConnectivity(t))
	tb.apply(t, tb.manifests(t))
	tb.checkImages(t, "local")
	tb.waitRecords(t, "after the way back")
	m.stop(t)
}

// checkImages wants all pods of the manifests to have the tag.
func (tb *testbed) checkImages(t *testing.T, tag string) {
	t.Helper()
	out := tb.mustKubectl(t, "--namespace", systemNamespace, "get", "pods", "--output=jsonpath={.items[*].spec.containers[*].image}")
	for image := range strings.FieldsSeq(out) {
		if !strings.HasSuffix(image, ":"+tag) {
			t.Errorf("a pod has the image %s; want tag %s", image, tag)
		}
	}
}
