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
)

const (
	// oldest is the first Kubernetes in which native sidecars are on without being asked for.
	oldest      = "v1.29.0"
	newest      = "v1.35.0"
	manifests   = "../../../deploy/kubernetes/"
	sidecarYAML = "../../../deploy/cilium/values.yaml"
	overlayYAML = "../../../deploy/cilium/bridge.yaml"
	systemdUnit = "../../../deploy/systemd/delegated-ipam.service"
)

// chartDir is where the chart of the Cilium that go.mod names lies.
var chartDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "install", "kubernetes", "cilium"), err
})

// chart renders Cilium's chart for a version of Kubernetes with files of values, as
// "helm template -f … -f …" does, and returns every object of it.
func chart(t *testing.T, kubernetes string, files ...string) []runtime.Object {
	t.Helper()
	dir, err := chartDir()
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	// By default the chart makes certificates, others each time.
	given := values.Options{ValueFiles: files, StringValues: []string{"hubble.tls.auto.method=cronJob"}}
	merged, err := given.MergeValues(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := chartutil.ProcessDependencies(c, merged); err != nil {
		t.Fatal(err)
	}
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	release := chartutil.ReleaseOptions{Name: "cilium", Namespace: "kube-system", IsInstall: true}
	input, err := chartutil.ToRenderValues(c, merged, release, caps)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(c, input)
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	for name, text := range rendered {
		if filepath.Base(name) != "NOTES.txt" {
			all = append(all, decode(t, name, []byte(text))...)
		}
	}
	return all
}

// kustomized returns every object of a directory below deploy/kubernetes, as
// "kubectl kustomize" makes them.
func kustomized(t *testing.T, directory string) []runtime.Object {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), manifests+directory)
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, directory, text)
}

// decode reads every object of a text, each of a kind of Kubernetes' own and with
// no key that the API server would not know, and none twice.
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

// blank tells whether a document has nothing but comments.
func blank(document []byte) bool {
	for line := range strings.Lines(string(document)) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// suffix is what kustomize adds to the name of a ConfigMap that it makes.
var suffix = regexp.MustCompile(`-[a-z0-9]{10}$`)

// named returns the one object of a type with that name, with or without a suffix.
func named[T interface{ GetName() string }](t *testing.T, all []runtime.Object, name string) T {
	t.Helper()
	var found []T
	for _, o := range all {
		if o, is := o.(T); is && (o.GetName() == name || suffix.ReplaceAllString(o.GetName(), "") == name) {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects %T named %s, want one", len(found), *new(T), name)
	}
	return found[0]
}
