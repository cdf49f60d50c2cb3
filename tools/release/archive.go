package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// file is a regular file of an archive.
type file struct {
	// name has slashes; mode is independent of the umask of the checkout.
	name    string
	mode    int64
	content []byte
}

// readFile returns a file of the disk with another name.
func readFile(name string, mode int64, path string) (file, error) {
	content, err := os.ReadFile(path)
	return file{name, mode, content}, err
}

// readTree returns the regular files below a directory in lexical order, with a prefix to their names.
func readTree(prefix, dir string) ([]file, error) {
	var all []file
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := readFile(prefix+filepath.ToSlash(relative), 0o644, path)
		all = append(all, f)
		return err
	})
	return all, err
}

// tarGz returns a compressed tar archive. Owners, times and headers do not depend on the machine.
func tarGz(files []file, changed time.Time) ([]byte, error) {
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: changed, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
