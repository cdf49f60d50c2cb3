package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/versions"
)

// newest is the version of Kubernetes that the suites run.
var newest = versions.Of("kubernetes")

const (
	// oldest is the first Kubernetes version with native sidecars enabled by default.
	oldest      = "v1.29.0"
	daemonYAML  = "../../../deploy/cilium/values.yaml"
	overlayYAML = "../../../deploy/cilium/bridge.yaml"
	sharedYAML  = "../../../deploy/cilium/whereabouts.yaml"
	ipv6YAML    = "../../../deploy/cilium/ipv6.yaml"
	patchedYAML = "../../../deploy/cilium/agent/values.yaml"
	ourChart    = "../../../deploy/chart"
	systemdUnit = "../../../deploy/systemd/delegated-ipam.service"
)

// chartDir returns the directory of the chart in the Cilium version of go.mod.
var chartDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "install", "kubernetes", "cilium"), err
})

// chart renders Cilium's chart for a version of Kubernetes with files of values, as
// "helm template -f … -f …" does, and returns its objects.
func chart(t *testing.T, kubernetes string, files ...string) []runtime.Object {
	t.Helper()
	dir, err := chartDir()
	check.Must(t, err)
	// By default the chart generates new certificates at each run.
	all, err := template(t, dir, kubernetes, values.Options{ValueFiles: files, StringValues: []string{"hubble.tls.auto.method=cronJob"}})
	check.Must(t, err)
	return all
}

// policyAPI is the API version that the chart looks for before it renders the admission policy.
const policyAPI = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"

// daemonSets renders the chart of deploy/chart with values in the form of "helm template --set", without its
// hooks.
func daemonSets(t *testing.T, set ...string) []runtime.Object {
	t.Helper()
	all := everything(t, set...)
	return slices.DeleteFunc(all, func(o runtime.Object) bool { return hookOf(t, o) != "" })
}

// hooks renders the objects of the chart of deploy/chart that helm creates only at that moment.
func hooks(t *testing.T, moment string, set ...string) []runtime.Object {
	t.Helper()
	all := everything(t, set...)
	return slices.DeleteFunc(all, func(o runtime.Object) bool { return hookOf(t, o) != moment })
}

func everything(t *testing.T, set ...string) []runtime.Object {
	t.Helper()
	all, err := template(t, ourChart, newest, values.Options{Values: set}, policyAPI)
	check.Must(t, err)
	return all
}

func hookOf(t *testing.T, o runtime.Object) string {
	return metadataOf(t, o).GetAnnotations()["helm.sh/hook"]
}

func metadataOf(t *testing.T, o runtime.Object) metav1.Object {
	t.Helper()
	m, err := meta.Accessor(o)
	check.Must(t, err)
	return m
}

// template renders a chart as "helm template" does.
func template(t *testing.T, dir, kubernetes string, given values.Options, apis ...string) ([]runtime.Object, error) {
	t.Helper()
	files, err := templateFiles(t, dir, kubernetes, given, apis...)
	if err != nil {
		return nil, err
	}
	var all []runtime.Object
	for name, text := range files {
		if filepath.Base(name) != "NOTES.txt" {
			all = append(all, decode(t, name, []byte(text))...)
		}
	}
	return all, nil
}

// templateFiles renders a chart and returns the text of each template.
func templateFiles(t *testing.T, dir, kubernetes string, given values.Options, apis ...string) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(dir)
	check.Must(t, err)
	return renderFiles(t, c, kubernetes, given, apis...)
}

// renderFiles renders a loaded chart, in a release of its name.
func renderFiles(t *testing.T, c *helmchart.Chart, kubernetes string, given values.Options, apis ...string) (map[string]string, error) {
	t.Helper()
	merged, err := given.MergeValues(nil)
	check.Must(t, err)
	check.Must(t, chartutil.ProcessDependencies(c, merged))
	version, err := chartutil.ParseKubeVersion(kubernetes)
	check.Must(t, err)
	version.Version = kubernetes // a cluster has the suffix of its distribution, which ParseKubeVersion omits
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	caps.APIVersions = append(caps.APIVersions, apis...)
	release := chartutil.ReleaseOptions{Name: c.Name(), Namespace: "kube-system", IsInstall: true}
	input, err := chartutil.ToRenderValues(c, merged, release, caps)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, input)
}

// kustomization returns the directory of a kustomization in deploy/kubernetes.
func kustomization(t *testing.T, name string) string {
	t.Helper()
	found, err := filepath.Glob("../../../deploy/kubernetes/*/" + name)
	check.Must(t, err)
	if len(found) != 1 {
		t.Fatalf("the kustomizations named %s are %q; want 1", name, found)
	}
	return found[0]
}

// kustomized returns the objects of a kustomization in deploy/kubernetes, as "kubectl kustomize" does.
func kustomized(t *testing.T, name string) []runtime.Object {
	t.Helper()
	return build(t, kustomization(t, name))
}

// overlay returns the objects of a kustomization over one in deploy/kubernetes.
func overlay(t *testing.T, name, lines string) []runtime.Object {
	t.Helper()
	base, err := filepath.Abs(kustomization(t, name))
	check.Must(t, err)
	over := t.TempDir()
	relative, err := filepath.Rel(over, base)
	check.Must(t, err)
	text := "resources: [" + relative + "]\n" + lines + "\n"
	check.Must(t, os.WriteFile(filepath.Join(over, "kustomization.yaml"), []byte(text), 0o644))
	return build(t, over)
}

func build(t *testing.T, dir string) []runtime.Object {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	check.Must(t, err)
	text, err := made.AsYaml()
	check.Must(t, err)
	return decode(t, dir, text)
}

// decode parses the objects of a YAML text strictly: only built-in kinds, and no unknown or
// duplicate keys.
func decode(t *testing.T, name string, text []byte) (all []runtime.Object) {
	t.Helper()
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	defer documents.Close()
	buffer := make([]byte, len(text)+1)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if blank(buffer[:n]) {
			continue
		}
		object, _, err := strict.Decode(buffer[:n], nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, buffer[:n])
		}
		all = append(all, object)
	}
}

// blank reports whether a document has only comments.
func blank(document []byte) bool {
	for line := range strings.Lines(string(document)) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// suffix matches the hash that kustomize appends to the name of a generated ConfigMap.
var suffix = regexp.MustCompile(`-[a-z0-9]{10}$`)

// named returns the object of a type with that name, with or without a suffix.
func named[T interface{ GetName() string }](t *testing.T, all []runtime.Object, name string) T {
	t.Helper()
	var found []T
	for _, o := range all {
		if o, is := o.(T); is && (o.GetName() == name || suffix.ReplaceAllString(o.GetName(), "") == name) {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects %T are named %s; want 1", len(found), *new(T), name)
	}
	return found[0]
}

func TestMain(m *testing.M) { harness.Main(m) }
