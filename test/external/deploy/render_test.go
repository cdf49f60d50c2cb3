package deploy

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// oldest is the first Kubernetes version with native sidecars enabled by default.
	oldest      = "v1.29.0"
	newest      = "v1.35.0"
	manifests   = "../../../deploy/kubernetes/"
	sidecarYAML = "../../../deploy/cilium/values.yaml"
	overlayYAML = "../../../deploy/cilium/bridge.yaml"
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
	harness.Must(t, err)
	c, err := loader.Load(dir)
	harness.Must(t, err)
	// By default the chart generates new certificates at each run.
	given := values.Options{ValueFiles: files, StringValues: []string{"hubble.tls.auto.method=cronJob"}}
	merged, err := given.MergeValues(nil)
	harness.Must(t, err)
	harness.Must(t, chartutil.ProcessDependencies(c, merged))
	version, err := chartutil.ParseKubeVersion(kubernetes)
	harness.Must(t, err)
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	release := chartutil.ReleaseOptions{Name: "cilium", Namespace: "kube-system", IsInstall: true}
	input, err := chartutil.ToRenderValues(c, merged, release, caps)
	harness.Must(t, err)
	rendered, err := engine.Render(c, input)
	harness.Must(t, err)
	var all []runtime.Object
	for name, text := range rendered {
		if filepath.Base(name) != "NOTES.txt" {
			all = append(all, decode(t, name, []byte(text))...)
		}
	}
	return all
}

// kustomized returns the objects of a directory in deploy/kubernetes, as "kubectl kustomize" does.
func kustomized(t *testing.T, dir string) []runtime.Object {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), manifests+dir)
	harness.Must(t, err)
	text, err := made.AsYaml()
	harness.Must(t, err)
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
