package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// reconcile imitates whereabouts' ip-reconciler and the garbage collection of calico's controllers:
// it frees every address of a pod that is not in the file living-pods, with one namespace/name on
// each line. An address without a pod is kept.
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
		pod := c.podIn(text)
		return pod == "" || slices.Contains(living, pod)
	})
}

// podIn returns the pod in the text of an address file; empty for none.
func (c conf) podIn(text string) string {
	first, rest, _ := strings.Cut(text, "\n")
	switch c.IPAM.KeyedBy {
	case "pod":
		return first
	case "network":
		return rest
	}
	return ""
}
