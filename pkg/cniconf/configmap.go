package cniconf

import (
	"os"
	"path/filepath"
	"strings"
)

// dataLink is the link by which the kubelet replaces the files of a ConfigMap volume atomically:
// FILE -> ..data/FILE, and ..data -> the directory of the present content, whose name begins
// with two dots (AtomicWriter in Kubernetes' pkg/volume/util). A Secret and a projected volume
// have it, too, and are as shared.
const dataLink = "..data"

// inConfigMap reports whether a file is in such a volume. A file that is mounted alone (subPath)
// is a plain bind mount, and cannot be distinguished from one of the node.
func inConfigMap(file string) bool {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return false
	}
	for dir := filepath.Dir(real); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if !strings.HasPrefix(filepath.Base(dir), "..") {
			continue
		}
		if target, err := os.Readlink(filepath.Join(filepath.Dir(dir), dataLink)); err == nil && target == filepath.Base(dir) {
			return true
		}
	}
	return false
}
