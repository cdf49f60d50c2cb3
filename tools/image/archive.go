package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// dockerArchitecture is the architecture of the image in manifest.json. That file, which Docker's
// classic image store reads, cannot have two.
const dockerArchitecture = "amd64"

// archive is an OCI image layout with one image index.
type archive struct {
	name, tag string
	// images has the image of each architecture.
	images map[string]v1.Image
	time   time.Time
}

// registry is where a release pushes its images (.github/workflows/release.yml).
const registry = "ghcr.io/delegated-ipam/"

// repository returns the name that chart and manifests have.
func (a archive) repository() string { return registry + a.name }

func (a archive) qualified() string { return a.repository() + ":" + a.tag }

// architectures returns the sorted architectures.
func (a archive) architectures() []string { return slices.Sorted(maps.Keys(a.images)) }

// writeFile writes the archive to a file, which appears when it is complete.
func (a archive) writeFile(path string) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := a.writeLayout(dir); err != nil {
		return err
	}
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err := errors.Join(pack(f, os.DirFS(dir), a.time), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".new"))
	}
	return os.Rename(path+".new", path)
}

// writeLayout writes the layout into an empty directory. The index has two names, by tag and by digest:
// containerd finds an image that it has not pulled only by the names of the archive. Each name has both
// annotations that runtimes read it from.
func (a archive) writeLayout(dir string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range a.architectures() {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: a.images[arch], Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	for _, name := range []string{a.qualified(), a.repository() + "@" + digest.String()} {
		err = l.AppendIndex(index, layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": name,
			"io.containerd.image.name":          name,
		}))
		if err != nil {
			return err
		}
	}
	image, ok := a.images[dockerArchitecture]
	if !ok {
		return nil
	}
	manifest, err := a.dockerManifest(image)
	if err != nil {
		return err
	}
	return l.WriteFile("manifest.json", manifest, 0o644)
}

// dockerManifest returns manifest.json, which names the parts of one image in the layout. containerd
// ignores it because there is an oci-layout.
func (a archive) dockerManifest(image v1.Image) ([]byte, error) {
	m, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	d := tarball.Descriptor{Config: blob(m.Config), RepoTags: []string{a.qualified()}}
	for _, layer := range m.Layers {
		d.Layers = append(d.Layers, blob(layer))
	}
	return json.Marshal(tarball.Manifest{d})
}

// blob returns the path of a blob in the layout.
func blob(d v1.Descriptor) string { return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex }

// pack writes the regular files of a directory as a tar archive in lexical order.
func pack(w io.Writer, dir fs.FS, changed time.Time) error {
	t := tar.NewWriter(w)
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		return writeEntry(t, name, 0o644, changed, content)
	})
	return errors.Join(err, t.Close())
}
