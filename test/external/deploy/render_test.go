package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	oldest   = "v1.29.0"
	ourChart = "../../../deploy/chart"
)

// chartDir returns the directory of the chart in the Cilium version of go.mod.
var chartDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "install", "kubernetes", "cilium"), err
})

// ciliumText returns the text of each file of Cilium's chart for a version of Kubernetes, with files of values in
// deploy/cilium, as "helm template -f … -f …" renders it.
func ciliumText(t *testing.T, kubernetes string, files ...string) map[string]string {
	t.Helper()
	dir, err := chartDir()
	check.Must(t, err)
	// By default the chart generates new certificates at each run.
	given := values.Options{StringValues: []string{"hubble.tls.auto.method=cronJob"}}
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join("../../../deploy/cilium", file)
		}
		given.ValueFiles = append(given.ValueFiles, file)
	}
	rendered, err := templateFiles(t, dir, kubernetes, given)
	check.Must(t, err)
	return specific(rendered)
}

// everything returns the objects of our chart with values as in sets.
func everything(t *testing.T, sets ...string) []runtime.Object {
	t.Helper()
	return decode(t, chartText(t, sets...))
}

func metadataOf(t *testing.T, o runtime.Object) metav1.Object {
	t.Helper()
	m, err := meta.Accessor(o)
	check.Must(t, err)
	return m
}

// templateFiles renders a chart and returns the text of each template.
func templateFiles(t *testing.T, dir, kubernetes string, given values.Options) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(dir)
	check.Must(t, err)
	return renderFiles(t, c, kubernetes, given)
}

// renderFiles renders a loaded chart, in a release of its name.
func renderFiles(t *testing.T, c *helmchart.Chart, kubernetes string, given values.Options) (map[string]string, error) {
	t.Helper()
	merged, err := given.MergeValues(nil)
	check.Must(t, err)
	check.Must(t, chartutil.ProcessDependencies(c, merged))
	version, err := chartutil.ParseKubeVersion(kubernetes)
	check.Must(t, err)
	version.Version = kubernetes // a cluster has the suffix of its distribution, which ParseKubeVersion omits
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	if kubernetes != oldest { // below 1.30
		caps.APIVersions = append(caps.APIVersions, "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")
	}
	release := chartutil.ReleaseOptions{Name: c.Name(), Namespace: "kube-system", IsInstall: true}
	input, err := chartutil.ToRenderValues(c, merged, release, caps)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, input)
}

// overlay returns the objects of a kustomization over one in deploy/kubernetes, as "kubectl kustomize" does.
func overlay(t *testing.T, name, lines string) []runtime.Object {
	t.Helper()
	found, err := filepath.Glob("../../../deploy/kubernetes/*/" + name)
	check.Must(t, err)
	if len(found) != 1 {
		t.Fatalf("the kustomizations named %s are %q; want 1", name, found)
	}
	base, err := filepath.Abs(found[0])
	check.Must(t, err)
	over := t.TempDir()
	relative, err := filepath.Rel(over, base)
	check.Must(t, err)
	text := "resources: [" + relative + "]\n" + lines + "\n"
	check.Must(t, os.WriteFile(filepath.Join(over, "kustomization.yaml"), []byte(text), 0o644))
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), over)
	check.Must(t, err)
	rendered, err := made.AsYaml()
	check.Must(t, err)
	return decode(t, map[string]string{name: string(rendered)})
}

// decode parses the objects of YAML texts strictly: only built-in kinds, and no unknown or duplicate keys.
func decode(t *testing.T, texts map[string]string) (all []runtime.Object) {
	t.Helper()
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, text := range texts {
		for document := range strings.SplitSeq("\n"+text, "\n---") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			object, _, err := strict.Decode([]byte(document), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			all = append(all, object)
		}
	}
	return all
}

// suffix matches the hash that kustomize appends to the name of a generated ConfigMap.
var suffix = regexp.MustCompile(`(?m)-[2456789bcdfghkmt]{10}$`)

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
