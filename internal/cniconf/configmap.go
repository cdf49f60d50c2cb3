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

// inConfigMap reports whether a file is in such a volume, or cannot be resolved. A file that is
// mounted alone (subPath) is a plain bind mount, and cannot be distinguished from one of the node.
func inConfigMap(file string) bool {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		// Either there is no file, or the kubelet has just removed the previous content.
		return true
	}
	for dir := filepath.Dir(real); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if !strings.HasPrefix(filepath.Base(dir), "..") {
			continue
		}
		// It need not name this directory any more: the kubelet may have replaced it meanwhile.
		if target, err := os.Readlink(filepath.Join(filepath.Dir(dir), dataLink)); err == nil && strings.HasPrefix(target, "..") {
			return true
		}
	}
	return false
}
