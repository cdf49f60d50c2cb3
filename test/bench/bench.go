package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
)

// bench is one run of the whole benchmark.
type bench struct {
	options
	report report
}

// measure measures every row and the growth.
func (b *bench) measure() error {
	wanted, err := regexp.Compile(b.only)
	if err == nil {
		err = os.RemoveAll(b.dir)
	}
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		do   func() error
	}{
		{"allocate and release", b.lifecycle},
		{"held, verified by a lookup", b.heldLookedUp},
		{"held, within the verify interval", b.heldWithin},
		{"eight clients", b.manyClients},
		{"pods through the sidecar", b.pods},
		{"eight pods", b.manyPods},
		{"a plugin of 200 ms", b.slowPods},
		{"memory of pods", b.podMemory},
		{"start of the CNI plugin", b.startCNI},
		{"start", b.start},
		{"memory", b.memory},
		{"binary", b.size},
		{"growth", b.growth},
	} {
		if !wanted.MatchString(part.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s\n", part.name)
		if err := part.do(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return os.RemoveAll(b.dir)
}

// withBaseline runs work with a sidecar on a new node and a bare plugin with a separate store on
// the same file system.
func (b *bench) withBaseline(name string, flags []string, work func(*server, *bare) error) error {
	n, err := b.newNode(name)
	if err != nil {
		return err
	}
	plugin, err := newBare(b.plugins, n.store()+"-bare")
	if err != nil {
		return err
	}
	s, err := n.sidecar(flags...)
	if err != nil {
		return err
	}
	return errors.Join(work(s, plugin), s.stop())
}
