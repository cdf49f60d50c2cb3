package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// unpinned is what the manifests in the repository name: the tag of "make image", and the versions in
// Chart.yaml.
const unpinned = "local"

var (
	runbook         = regexp.MustCompile(`(runbook_url: \S+/blob/)main/`)
	chartVersion    = regexp.MustCompile(`(?m)^version: 0\.0\.0$`)
	chartAppVersion = regexp.MustCompile(`(?m)^appVersion: ` + unpinned + `$`)
	// image is a reference in a manifest.
	image = regexp.MustCompile(`(?m)^\s*(?:- )?image: (\S+)$`)
)

// registry is where the workflow pushes the images.
const registry = "ghcr.io/delegated-ipam/"

// references has the reference of each image in a manifest: REGISTRY/NAME:VERSION@DIGEST.
type references map[string]string

// references returns those of the images of the release.
func (r release) references() (references, error) {
	all := references{}
	for _, name := range images() {
		digest, err := imageDigest(filepath.Join(r.parts, name+".tar"))
		if err != nil {
			return nil, err
		}
		all[name] = registry + name + ":" + string(r.version) + "@" + digest
	}
	return all, nil
}

// imageDigest returns the digest of the image index in an archive of tools/image, an OCI image layout. A
// registry gives the image the same one.
func imageDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for archive := tar.NewReader(f); ; {
		h, err := archive.Next()
		if err != nil {
			return "", fmt.Errorf("%s: index.json: %w", path, err)
		}
		if h.Name != "index.json" {
			continue
		}
		var index v1.IndexManifest
		if err := json.NewDecoder(archive).Decode(&index); err != nil || len(index.Manifests) == 0 {
			return "", fmt.Errorf("%s: index.json: %w", path, cmp.Or(err, errors.New("expected an image")))
		}
		return index.Manifests[0].Digest.String(), nil
	}
}

// pin returns a file of deploy/ with the images, the chart and the runbooks of the version.
func (v version) pin(f file, images references) file {
	for name, reference := range images {
		_, digest, _ := strings.Cut(reference, "@")
		for pattern, pinned := range map[string]string{
			`\bimage: ` + registry + name + `:` + unpinned + `\b`:                  "image: " + reference,
			`\b(newName: ` + registry + name + `\n( +)newTag: )` + unpinned + `\b`: "${1}" + string(v) + "\n${2}digest: " + digest,
			`(?s)(repository: delegated-ipam/` + name + `\n.*?\n +digest: )""`:     "${1}" + digest,
		} {
			f.content = regexp.MustCompile(pattern).ReplaceAll(f.content, []byte(pinned))
		}
	}
	f.content = runbook.ReplaceAll(f.content, []byte("${1}"+string(v)+"/"))
	if f.name == "deploy/chart/Chart.yaml" {
		f.content = chartVersion.ReplaceAll(f.content, []byte("version: "+v.number()))
		f.content = chartAppVersion.ReplaceAll(f.content, []byte("appVersion: "+string(v)))
	}
	return f
}

// check returns an error unless a manifest names images, all of them of the release.
func (images references) check(name string, text []byte) error {
	all := image.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		return fmt.Errorf("%s names no image", name)
	}
	for _, m := range all {
		if reference := string(m[1]); reference != images[daemon] && reference != images[bridge] {
			return fmt.Errorf("%s names the image %s; expected %s or %s", name, reference, images[daemon], images[bridge])
		}
	}
	return nil
}

// writeManifests writes deploy/, the chart, each kustomization of deploy/kubernetes as one file, and the
// values.
func (r release) writeManifests() error {
	images, err := r.references()
	if err != nil {
		return err
	}
	tree, err := readTree("deploy/", filepath.Join(r.root, "deploy"))
	if err != nil {
		return err
	}
	for i := range tree {
		tree[i] = r.version.pin(tree[i], images)
	}
	if err := r.saveTarGz("deploy.tar.gz", tree); err != nil {
		return err
	}
	if err := r.writeChart(tree); err != nil {
		return err
	}
	for _, f := range tree {
		if err := r.writeFromTree(tree, f, images); err != nil {
			return err
		}
	}
	return nil
}

// writeFromTree writes the file of the release that comes from a file of deploy/, if there is one.
func (r release) writeFromTree(tree []file, f file, images references) error {
	dir, name := filepath.Split(f.name)
	switch {
	case dir == "deploy/cilium/" && name == "values.yaml":
		return r.save("cilium-values.yaml", f.content)
	case dir == "deploy/cilium/" && filepath.Ext(name) == ".yaml":
		return r.save("cilium-values-"+name, f.content)
	case f.name == "deploy/chart/values.yaml":
		return r.save("chart-values.yaml", f.content)
	case name == "kustomization.yaml":
		dir = strings.TrimSuffix(dir, "/")
		rendered, err := kustomize(tree, dir)
		if err != nil {
			return err
		}
		out := "kubernetes-" + filepath.Base(dir) + ".yaml"
		if err := images.check(out, rendered); err != nil {
			return err
		}
		return r.save(out, append(fmt.Appendf(nil, "# %s of delegated-ipam %s.\n", dir, r.version), rendered...))
	}
	return nil
}

// kustomize renders a directory of a tree, as "kubectl kustomize" does.
func kustomize(tree []file, dir string) ([]byte, error) {
	disk := filesys.MakeFsInMemory()
	for _, f := range tree {
		if err := disk.WriteFile("/"+f.name, f.content); err != nil {
			return nil, err
		}
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, "/"+dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return objects.AsYaml()
}

// writeChart writes the archive of the chart, with its version.
func (r release) writeChart(tree []file) error {
	const dir = "deploy/chart/"
	var chart []file
	for _, f := range tree {
		inChart, ok := strings.CutPrefix(f.name, dir)
		if !ok {
			continue
		}
		if inChart == "Chart.yaml" && !bytes.Contains(f.content, []byte("\nversion: "+r.version.number()+"\nappVersion: "+string(r.version)+"\n")) {
			return fmt.Errorf("%s has no version and appVersion to replace; expected 0.0.0 and %s", f.name, unpinned)
		}
		f.name = daemon + "/" + inChart
		chart = append(chart, f)
	}
	if len(chart) == 0 {
		return fmt.Errorf("%s: %w", dir, os.ErrNotExist)
	}
	return r.saveTarGz(daemon+"-"+r.version.number()+".tgz", chart)
}

// saveTarGz writes an archive of the release.
func (r release) saveTarGz(name string, files []file) error {
	content, err := tarGz(files, r.time)
	if err != nil {
		return err
	}
	return r.save(name, content)
}
