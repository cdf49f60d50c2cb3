package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is the user and the group of the project, between those that distributions, systemd and
	// container runtimes assign (https://systemd.io/UIDS-GIDS). A manifest that needs root, as for
	// host-local, sets runAsUser.
	user = "60913:60913"
	// path is the one that container runtimes use where an image has none; plugins get it, too.
	path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// labels is the prefix of the annotations that the OCI image specification defines.
	labels = "org.opencontainers.image."
)

// source is what the images of a program have in common.
type source struct {
	name, version, revision string
	// time is the time of the commit.
	time    time.Time
	license []byte
}

// purpose returns the description of the image, the default arguments of its program, and the
// programs beside it.
func (s source) purpose() (description string, args, beside []string, err error) {
	switch s.name {
	case "delegated-ipam":
		return "Cilium's IPAM API over any CNI IPAM plugin", []string{"serve"}, []string{"delegated-ipam-cni", "delegated-ipam-cri"}, nil
	case "delegated-ipam-bridge":
		return "Fills spec.ipam.pool of a CiliumNode with addresses of delegated-ipam", nil, nil, nil
	default:
		return "", nil, nil, fmt.Errorf("unknown program %q; expected delegated-ipam or delegated-ipam-bridge", s.name)
	}
}

// image returns the image for an architecture. It contains the programs and the licences, and no
// shell, package or certificate: the programs use a unix socket, the host's plugins, and the API
// server with the certificate of its service account.
func (s source) image(arch string, programs []program) (v1.Image, error) {
	description, args, _, err := s.purpose()
	if err != nil {
		return nil, err
	}
	content, err := s.layer(programs)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: s.time}, CreatedBy: "tools/image"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: s.time}
	config.Config = v1.Config{
		User: user, Env: []string{path}, Entrypoint: []string{s.name}, Cmd: args,
		Labels: map[string]string{
			labels + "title":       s.name,
			labels + "description": description,
			labels + "licenses":    "Apache-2.0",
			labels + "source":      "https://github.com/delegated-ipam/delegated-ipam",
			labels + "version":     s.version,
			labels + "revision":    s.revision,
		},
	}
	return mutate.ConfigFile(image, config)
}

// layer returns the file system of the image as an uncompressed tar archive. Modes and owners
// are fixed: copied from a checkout with a umask of 077, the image's user could not run the programs.
func (s source) layer(programs []program) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	type entry struct {
		name    string
		mode    int64
		content []byte
	}
	entries := []entry{{"LICENSE", 0o644, s.license}, {"licenses/", 0o755, nil}}
	for _, p := range programs {
		entries = append(entries, entry{"licenses/" + p.name, 0o644, p.licenses})
	}
	entries = append(entries, entry{"usr/", 0o755, nil}, entry{"usr/bin/", 0o755, nil})
	for _, p := range programs {
		entries = append(entries, entry{"usr/bin/" + p.name, 0o755, p.content})
	}
	for _, f := range entries {
		if err := writeEntry(w, f.name, f.mode, s.time, f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// writeEntry adds a file of root to a tar archive; a directory if its name ends with a slash.
func writeEntry(w *tar.Writer, name string, mode int64, changed time.Time, content []byte) error {
	// USTAR has no fields that depend on the machine.
	err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: changed, Format: tar.FormatUSTAR})
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
