package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// root is the directory of the repository.
const root = "../.."

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inputs writes programs, images and bills of materials as "make release" does, and returns their
// directories.
func inputs(t *testing.T) (programs, parts string) {
	t.Helper()
	dir := t.TempDir()
	programs, parts = filepath.Join(dir, "programs"), filepath.Join(dir, "parts")
	must(t, os.MkdirAll(parts, 0o700))
	for _, arch := range architectures() {
		must(t, os.MkdirAll(filepath.Join(programs, arch), 0o700))
		for _, name := range names() {
			must(t, os.WriteFile(filepath.Join(programs, arch, name), []byte("program "+arch+" "+name), 0o600))
			must(t, os.WriteFile(filepath.Join(programs, arch, name+".licenses"), []byte("licences "+arch+" "+name), 0o600))
			must(t, os.WriteFile(filepath.Join(parts, name+"-"+arch+".cdx.json"), []byte("{}"), 0o600))
		}
	}
	for _, name := range images() {
		var image bytes.Buffer
		w := tar.NewWriter(&image)
		index := fmt.Sprintf(`{"manifests":[{"digest":%q},{"digest":%q}]}`, digest(name), digest("other"))
		must(t, w.WriteHeader(&tar.Header{Name: "index.json", Mode: 0o644, Size: int64(len(index))}))
		_, err := w.Write([]byte(index))
		must(t, errors.Join(err, w.Close(), os.WriteFile(filepath.Join(parts, name+".tar"), image.Bytes(), 0o600)))
	}
	return programs, parts
}

// digest returns the digest of the image with a name.
func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

// build makes a release of a checkout and returns its files.
func build(t *testing.T, version, checkout string) map[string][]byte {
	t.Helper()
	programs, parts := inputs(t)
	out := filepath.Join(t.TempDir(), "release", version)
	var listed strings.Builder
	must(t, run([]string{"-version", version, "-root", checkout, "-programs", programs, "-parts", parts, "-time", "1700000000", "-out", out}, &listed))
	content := map[string][]byte{}
	must(t, filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !strings.Contains(listed.String(), path) {
			t.Errorf("%s was not printed", path)
		}
		content[d.Name()], err = os.ReadFile(path)
		return err
	}))
	return content
}

// unpack returns the files of a tar.gz archive, each with its mode.
func unpack(t *testing.T, archive []byte) (content map[string]string, modes map[string]int64) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	must(t, err)
	content, modes = map[string]string{}, map[string]int64{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return content, modes
		}
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s belongs to %d:%d and was changed at %s; want 0:0 and the time of the commit", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		content[h.Name], modes[h.Name] = string(data), h.Mode
	}
}

func TestFiles(t *testing.T) {
	got := build(t, "v1.2.3-snapshot", root)
	want := []string{
		"RELEASE_NOTES.md", "SHA256SUMS", "chart-values.yaml", "cilium-values.yaml",
		"delegated-ipam-1.2.3-snapshot.tgz", "delegated-ipam-bridge-image.tar",
		"delegated-ipam-bridge-linux-amd64.cdx.json", "delegated-ipam-bridge-linux-amd64.tar.gz",
		"delegated-ipam-bridge-linux-arm64.cdx.json", "delegated-ipam-bridge-linux-arm64.tar.gz",
		"delegated-ipam-cni-linux-amd64.cdx.json", "delegated-ipam-cni-linux-amd64.tar.gz",
		"delegated-ipam-cni-linux-arm64.cdx.json", "delegated-ipam-cni-linux-arm64.tar.gz",
		"delegated-ipam-cri-linux-amd64.cdx.json", "delegated-ipam-cri-linux-amd64.tar.gz",
		"delegated-ipam-cri-linux-arm64.cdx.json", "delegated-ipam-cri-linux-arm64.tar.gz",
		"delegated-ipam-image.tar",
		"delegated-ipam-linux-amd64.cdx.json", "delegated-ipam-linux-amd64.tar.gz", "delegated-ipam-linux-arm64.cdx.json", "delegated-ipam-linux-arm64.tar.gz",
		"deploy.tar.gz",
	}
	kustomizations, err := filepath.Glob(root + "/deploy/kubernetes/*/*/kustomization.yaml")
	must(t, err)
	for _, path := range kustomizations {
		want = append(want, "kubernetes-"+filepath.Base(filepath.Dir(path))+".yaml")
	}
	overlays, err := filepath.Glob(root + "/deploy/cilium/*.yaml")
	must(t, err)
	for _, path := range overlays {
		if name := filepath.Base(path); name != "values.yaml" {
			want = append(want, "cilium-values-"+name)
		}
	}
	slices.Sort(want)
	if names := slices.Sorted(maps.Keys(got)); len(kustomizations) == 0 || !slices.Equal(names, want) {
		t.Errorf("the files are %q; want %q", names, want)
	}
	var sums strings.Builder
	for _, name := range want {
		if name != "SHA256SUMS" && name != "RELEASE_NOTES.md" {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(got[name]), name)
		}
	}
	if string(got["SHA256SUMS"]) != sums.String() {
		t.Errorf("SHA256SUMS is\n%s; want\n%s", got["SHA256SUMS"], sums.String())
	}
	if notes := string(got["RELEASE_NOTES.md"]); !strings.Contains(notes, "`NAME:v1.2.3-snapshot`") || !strings.Contains(notes, "delegated-ipam-1.2.3-snapshot.tgz") {
		t.Errorf("the notes do not name the version: %s", notes)
	}
}

func TestPrograms(t *testing.T) {
	got := build(t, "v1.2.3-snapshot", root)
	for _, arch := range architectures() {
		for name, want := range map[string]map[string]int64{
			daemon: {"delegated-ipam.service": 0o644},
			bridge: {},
			cni:    {},
			cri:    {},
		} {
			want[name], want["LICENSE"], want["licenses/"+name] = 0o755, 0o644, 0o644
			content, modes := unpack(t, got[name+"-linux-"+arch+".tar.gz"])
			if !maps.Equal(modes, want) || content[name] != "program "+arch+" "+name || content["licenses/"+name] != "licences "+arch+" "+name {
				t.Errorf("%s for %s: modes %v, program %q; want %v, the program and its licences", name, arch, modes, content[name], want)
			}
		}
	}
}

// unpinnedReference finds what a release must not name.
var unpinnedReference = regexp.MustCompile(`image: \S*delegated-ipam\S*:local|digest: ""|newTag: local|version: 0\.0\.0|appVersion: local|runbook_url: \S+/blob/main/`)

func TestPinned(t *testing.T) {
	got := build(t, "v1.2.3-snapshot", root)
	deploy, _ := unpack(t, got["deploy.tar.gz"])
	chart, _ := unpack(t, got["delegated-ipam-1.2.3-snapshot.tgz"])
	for name, want := range map[string]string{
		deploy["deploy/kubernetes/base/daemon/kustomization.yaml"]: "newTag: v1.2.3-snapshot\n    digest: " + digest(daemon) + "\n",
		deploy["deploy/kubernetes/base/bridge/kustomization.yaml"]: "newTag: v1.2.3-snapshot\n    digest: " + digest(bridge) + "\n",
		deploy["deploy/chart/Chart.yaml"]:                          "\nversion: 1.2.3-snapshot\nappVersion: v1.2.3-snapshot\n",
		chart["delegated-ipam/Chart.yaml"]:                         "\nversion: 1.2.3-snapshot\nappVersion: v1.2.3-snapshot\n",
		deploy["deploy/prometheus/alerts.yaml"]:                    "/blob/v1.2.3-snapshot/docs/troubleshooting.md#delegatedipamdown\n",
		string(got["cilium-values.yaml"]):                          "image: ghcr.io/delegated-ipam/delegated-ipam:v1.2.3-snapshot@" + digest(daemon) + "\n",
		string(got["kubernetes-with-bridge.yaml"]):                 "image: ghcr.io/delegated-ipam/delegated-ipam-bridge:v1.2.3-snapshot@" + digest(bridge) + "\n",
		deploy["deploy/kubernetes/overlays/pods/install-cni.yaml"]: "image: ghcr.io/delegated-ipam/delegated-ipam:v1.2.3-snapshot@" + digest(daemon) + "\n",
	} {
		if !strings.Contains(name, want) {
			t.Errorf("got %s; want it to contain %q", name, want)
		}
	}
	var values struct {
		Daemon, Bridge struct {
			Image struct{ Repository, Digest string }
		}
	}
	must(t, yaml.Unmarshal([]byte(chart["delegated-ipam/values.yaml"]), &values))
	if values.Daemon.Image.Digest != digest(daemon) || values.Bridge.Image.Digest != digest(bridge) {
		t.Errorf("the chart has the images %+v; want the digests of the archives", values)
	}
	count := 0
	for name, content := range deploy {
		count++
		if found := unpinnedReference.FindString(content); found != "" {
			t.Errorf("%s contains %q", name, found)
		}
	}
	for name, content := range chart {
		inTree := strings.Replace(name, "delegated-ipam/", "deploy/chart/", 1)
		if content != deploy[inTree] {
			t.Errorf("%s in the chart differs from %s", name, inTree)
		}
		delete(deploy, inTree)
	}
	for name := range deploy {
		if strings.HasPrefix(name, "deploy/chart/") {
			t.Errorf("the chart lacks %s", name)
		}
	}
	if count < 20 {
		t.Errorf("deploy.tar.gz has %d files; want all of deploy/", count)
	}
}

func TestSame(t *testing.T) {
	first := build(t, "v1.2.3-snapshot", root)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	defer syscall.Umask(syscall.Umask(0o077))
	must(t, os.CopyFS(filepath.Join(elsewhere, "deploy"), os.DirFS(filepath.Join(root, "deploy"))))
	for _, name := range []string{"LICENSE", changelog} {
		content, err := os.ReadFile(filepath.Join(root, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(elsewhere, name), content, 0o600))
	}
	second := build(t, "v1.2.3-snapshot", elsewhere)
	if !maps.EqualFunc(first, second, bytes.Equal) {
		for name := range first {
			if !bytes.Equal(first[name], second[name]) {
				t.Errorf("%s differs between two runs", name)
			}
		}
		t.Errorf("two runs differ")
	}
}

func TestIncomplete(t *testing.T) {
	programs, parts := inputs(t)
	must(t, os.Remove(filepath.Join(parts, "delegated-ipam-bridge.tar")))
	out := filepath.Join(t.TempDir(), "v1.2.3")
	err := run([]string{"-version", "v1.2.3-snapshot", "-root", root, "-programs", programs, "-parts", parts, "-out", out}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "delegated-ipam-bridge.tar") {
		t.Errorf("error %v; want one that names the missing image", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s exists (%v); want it only when it is complete", out, err)
	}
}

func TestCheckImages(t *testing.T) {
	for text, want := range map[string]string{
		"image: delegated-ipam:v1.0.0\n - image: delegated-ipam-bridge:v1.0.0\n":  "",
		"image: delegated-ipam:local\n":                                           "delegated-ipam:local",
		"image: delegated-ipam:v1.0.0\nimage: registry.example/other:v1.0.0\n":    "other",
		"image: delegated-ipam:v1.0.00\n":                                         "v1.0.00",
		"kind: ConfigMap\n":                                                       "no image",
		"image: delegated-ipam:v1.0.0\n      - image: delegated-ipam-bridge:v2\n": "delegated-ipam-bridge:v2",
	} {
		err := references{daemon: daemon + ":v1.0.0", bridge: bridge + ":v1.0.0"}.check("x.yaml", []byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v; want %q", text, err, want)
		}
	}
}
