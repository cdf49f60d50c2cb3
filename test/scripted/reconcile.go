package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// reconcile imitates what runs beside a plugin and knows the pods of the cluster
// (whereabouts' ip-reconciler, the garbage collection of calico's controllers):
// every address that names a pod which is not in the file living-pods, one
// namespace/name a line, is freed. One that names no pod is kept.
func reconcile() error {
	c, err := parseConf(nil)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(c.scriptDir(), "living-pods"))
	if err != nil {
		return err
	}
	living := strings.Fields(string(data))
	s, err := c.openStore()
	if err != nil {
		return err
	}
	defer s.close()
	return s.freeUnless(func(text string) bool {
		pod := c.noted(text)
		return pod == "" || slices.Contains(living, pod)
	})
}

// noted returns the pod in the text of an address file; empty if there is none.
func (c conf) noted(text string) string {
	first, rest, _ := strings.Cut(text, "\n")
	if c.IPAM.KeyedBy == "pod" {
		return first
	}
	return rest
}
