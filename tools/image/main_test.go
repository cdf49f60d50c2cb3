package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// build builds a static program for an architecture, and those beside it, and returns its path.
func build(t *testing.T, dir, arch string, environ ...string) string {
	t.Helper()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, arch, "delegated-ipam")
	must(t, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600))
	cmd := exec.Command("go", "build", "-o", program, source)
	cmd.Env = append(os.Environ(), append([]string{"GOOS=linux", "GOARCH=" + arch, "CGO_ENABLED=0"}, environ...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	must(t, os.Chmod(program, 0o600)) // as with a umask of 077
	content, err := os.ReadFile(program)
	must(t, err)
	must(t, os.WriteFile(program+"-cni", content, 0o600))
	must(t, os.WriteFile(program+"-cri", content, 0o600))
	for _, name := range []string{"", "-cni", "-cri"} {
		must(t, os.WriteFile(program+name+".licenses", []byte("licences"+name+"\n"), 0o600))
	}
	return program
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes the archive of programs and returns its path.
func write(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	license, out := filepath.Join(dir, "LICENSE"), filepath.Join(dir, "image.tar")
	must(t, os.WriteFile(license, []byte("licence\n"), 0o600))
	args := []string{"-name", "delegated-ipam", "-tag", "v1", "-version", "v1.2.3", "-revision", "abc", "-time", "1700000000", "-license", license, "-out", out}
	must(t, run(append(args, programs...), io.Discard))
	return out
}

// unpack unpacks an archive into a new directory.
func unpack(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	files := contents(t, f)
	for name, content := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return dir
}

// contents returns the files of a tar archive.
func contents(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		content, err := io.ReadAll(archive)
		must(t, err)
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = content
		}
	}
}

func TestArchive(t *testing.T) {
	programs := t.TempDir()
	amd64, arm64 := build(t, programs, "amd64"), build(t, programs, "arm64")
	path := write(t, arm64, amd64)
	dir := unpack(t, path)
	index, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	must(t, validate.Index(index))
	top, err := index.IndexManifest()
	must(t, err)
	const name = "ghcr.io/delegated-ipam/delegated-ipam:v1"
	if len(top.Manifests) != 2 {
		t.Fatalf("the layout has %+v; want an index with two names", top.Manifests)
	}
	digest := top.Manifests[0].Digest
	for i, name := range []string{name, "ghcr.io/delegated-ipam/delegated-ipam@" + digest.String()} {
		want := map[string]string{"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
		if m := top.Manifests[i]; m.Digest != digest || !maps.Equal(m.Annotations, want) {
			t.Errorf("the layout has %+v; want the index %s with %v", m, digest, want)
		}
	}
	index, err = index.ImageIndex(digest)
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	var platforms []string
	for _, d := range manifest.Manifests {
		platforms = append(platforms, d.Platform.String())
		image, err := index.Image(d.Digest)
		must(t, err)
		wantImage(t, image, d.Platform.Architecture, filepath.Join(programs, d.Platform.Architecture, "delegated-ipam"))
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("the platforms are %v; want %v", platforms, want)
	}
	wantDocker(t, path, name)
}

// wantImage wants the image of a program: architecture, files and configuration.
func wantImage(t *testing.T, image v1.Image, arch, program string) {
	t.Helper()
	config, err := image.ConfigFile()
	must(t, err)
	if config.OS != "linux" || config.Architecture != arch || config.Created.Unix() != 1700000000 {
		t.Errorf("the image is for %s/%s, created at %v", config.OS, config.Architecture, config.Created)
	}
	for _, label := range []string{"title", "description", "licenses", "source", "version", "revision"} {
		if config.Config.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("the label %s is missing", label)
		}
	}
	config.Config.Labels = nil
	want := v1.Config{
		User: "60913:60913", Entrypoint: []string{"delegated-ipam"}, Cmd: []string{"serve"},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	if !reflect.DeepEqual(config.Config, want) {
		t.Errorf("the configuration is %+v; want %+v", config.Config, want)
	}
	layers, err := image.Layers()
	must(t, err)
	if len(layers) != 1 {
		t.Fatalf("%d layers; want one", len(layers))
	}
	layer, err := layers[0].Uncompressed()
	must(t, err)
	defer layer.Close()
	var listed bytes.Buffer
	files := contents(t, io.TeeReader(layer, &listed))
	content, err := os.ReadFile(program)
	must(t, err)
	wantFiles := map[string][]byte{"LICENSE": []byte("licence\n")}
	modes := map[string]int64{"LICENSE": 0o644, "licenses/": 0o755, "usr/": 0o755, "usr/bin/": 0o755}
	for _, name := range []string{"", "-cni", "-cri"} {
		name, licenses := "usr/bin/delegated-ipam"+name, "licenses/delegated-ipam"+name
		wantFiles[name], modes[name] = content, 0o755
		wantFiles[licenses], modes[licenses] = []byte("licences"+strings.TrimPrefix(licenses, "licenses/delegated-ipam")+"\n"), 0o644
	}
	if !maps.EqualFunc(files, wantFiles, bytes.Equal) {
		t.Errorf("%s: the files are %v", arch, slices.Sorted(maps.Keys(files)))
	}
	for archive := tar.NewReader(&listed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		if h.Mode != modes[h.Name] || h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s: mode %o, owner %d:%d, time %v", h.Name, h.Mode, h.Uid, h.Gid, h.ModTime)
		}
	}
}

// wantDocker wants the manifest.json of docker save with one name and the image for amd64.
func wantDocker(t *testing.T, path, name string) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	files := contents(t, f)
	var manifest tarball.Manifest
	must(t, json.Unmarshal(files["manifest.json"], &manifest))
	if len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{name}) || len(manifest[0].Layers) != 1 {
		t.Fatalf("manifest.json is %s", files["manifest.json"])
	}
	var config v1.ConfigFile
	must(t, json.Unmarshal(files[manifest[0].Config], &config))
	if config.Architecture != "amd64" || files[manifest[0].Layers[0]] == nil {
		t.Errorf("manifest.json names an image for %q and %v", config.Architecture, manifest[0].Layers)
	}
}

func TestReproducible(t *testing.T) {
	programs := t.TempDir()
	amd64, arm64 := build(t, programs, "amd64"), build(t, programs, "arm64")
	first, err := os.ReadFile(write(t, amd64, arm64))
	must(t, err)
	must(t, os.Chmod(amd64, 0o777))
	second, err := os.ReadFile(write(t, arm64, amd64))
	must(t, err)
	if !bytes.Equal(first, second) {
		t.Error("two archives of the same programs differ")
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	amd64 := build(t, dir, "amd64")
	alone, mixed := build(t, t.TempDir(), "amd64"), build(t, t.TempDir(), "amd64")
	must(t, os.Remove(alone+"-cni"))
	unlicensed := build(t, t.TempDir(), "amd64")
	must(t, os.Remove(unlicensed+"-cri.licenses"))
	must(t, os.Rename(build(t, t.TempDir(), "arm64"), mixed+"-cni"))
	license := filepath.Join(dir, "LICENSE")
	must(t, os.WriteFile(license, nil, 0o600))
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"nothing":              {nil, "expected -out"},
		"no program":           {[]string{"-out", "x"}, "expected -out"},
		"unknown program":      {[]string{"-name", "x", amd64}, "unknown program"},
		"twice":                {[]string{"-name", "delegated-ipam", amd64, amd64}, "a second program for amd64"},
		"not a program":        {[]string{"-name", "delegated-ipam", license}, license},
		"CNI plugin missing":   {[]string{"-name", "delegated-ipam", alone}, alone + "-cni"},
		"CNI plugin differs":   {[]string{"-name", "delegated-ipam", mixed}, "is for arm64; expected amd64"},
		"licences missing":     {[]string{"-name", "delegated-ipam", unlicensed}, unlicensed + "-cri.licenses"},
		"foreign architecture": {[]string{"-name", "delegated-ipam", build(t, t.TempDir(), "riscv64")}, "expected x86-64 or aarch64"},
		"dynamic":              {[]string{"-name", "delegated-ipam", build(t, t.TempDir(), "amd64", "GOFLAGS=-buildmode=pie")}, "dynamically linked"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.tar")
			err := run(append([]string{"-license", license, "-out", out}, tt.args...), io.Discard)
			if len(tt.args) == 0 {
				err = run(nil, io.Discard)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want an error with %q", err, tt.want)
			}
			if left, err := filepath.Glob(out + "*"); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}
