package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// unpinned is what the manifests in the repository name: the tag of "make image", and the versions in
// Chart.yaml.
const unpinned = "local"

var (
	imageTag        = regexp.MustCompile(`\b(image: delegated-ipam(?:-bridge)?):` + unpinned + `\b`)
	kustomizeTag    = regexp.MustCompile(`\b(newTag): ` + unpinned + `\b`)
	runbook         = regexp.MustCompile(`(runbook_url: \S+/blob/)main/`)
	chartVersion    = regexp.MustCompile(`(?m)^version: 0\.0\.0$`)
	chartAppVersion = regexp.MustCompile(`(?m)^appVersion: ` + unpinned + `$`)
	// image is a reference in a manifest.
	image = regexp.MustCompile(`(?m)^\s*(?:- )?image: (\S+)$`)
)

// pin returns a file of deploy/ with the images, the chart and the runbooks of the version.
func (v version) pin(f file) file {
	f.content = imageTag.ReplaceAll(f.content, []byte("${1}:"+string(v)))
	f.content = kustomizeTag.ReplaceAll(f.content, []byte("${1}: "+string(v)))
	f.content = runbook.ReplaceAll(f.content, []byte("${1}"+string(v)+"/"))
	if f.name == "deploy/chart/Chart.yaml" {
		f.content = chartVersion.ReplaceAll(f.content, []byte("version: "+v.number()))
		f.content = chartAppVersion.ReplaceAll(f.content, []byte("appVersion: "+string(v)))
	}
	return f
}

// checkImages returns an error unless a manifest names images, all of them of the version.
func (v version) checkImages(name string, text []byte) error {
	all := image.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		return fmt.Errorf("%s names no image", name)
	}
	for _, m := range all {
		if reference := string(m[1]); reference != sidecar+":"+string(v) && reference != bridge+":"+string(v) {
			return fmt.Errorf("%s names the image %s; expected %s or %s of %s", name, reference, sidecar, bridge, v)
		}
	}
	return nil
}

// writeManifests writes deploy/, the chart, each kustomization of deploy/kubernetes as one file, and the
// values.
func (r release) writeManifests() error {
	tree, err := readTree("deploy/", filepath.Join(r.root, "deploy"))
	if err != nil {
		return err
	}
	for i := range tree {
		tree[i] = r.version.pin(tree[i])
	}
	if err := r.saveTarGz("deploy.tar.gz", tree); err != nil {
		return err
	}
	if err := r.writeChart(tree); err != nil {
		return err
	}
	for _, f := range tree {
		if err := r.writeFromTree(tree, f); err != nil {
			return err
		}
	}
	return nil
}

// writeFromTree writes the file of the release that comes from a file of deploy/, if there is one.
func (r release) writeFromTree(tree []file, f file) error {
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
		if err := r.version.checkImages(out, rendered); err != nil {
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
		f.name = sidecar + "/" + inChart
		chart = append(chart, f)
	}
	if len(chart) == 0 {
		return fmt.Errorf("%s: %w", dir, os.ErrNotExist)
	}
	return r.saveTarGz(sidecar+"-"+r.version.number()+".tgz", chart)
}

// saveTarGz writes an archive of the release.
func (r release) saveTarGz(name string, files []file) error {
	content, err := tarGz(files, r.time)
	if err != nil {
		return err
	}
	return r.save(name, content)
}
