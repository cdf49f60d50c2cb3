package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// bench is one run of the whole benchmark.
type bench struct {
	options
	report report
}

// measure measures every row and the growth.
func (b *bench) measure() {
	wanted := must(regexp.Compile(b.only))
	failIf(os.RemoveAll(b.dir))
	b.install()
	for _, part := range []struct {
		name string
		do   func()
	}{
		{"allocate and release", b.lifecycle},
		{"held, verified by a lookup", b.heldLookedUp},
		{"held, within the verify interval", b.heldWithin},
		{"eight clients", b.manyClients},
		{"pods through the daemon", b.pods},
		{"eight pods", b.manyPods},
		{"a plugin of 200 ms", b.slowPods},
		{"warm leases", b.warmPods},
		{"memory of pods", b.podMemory},
		{"start of the CNI plugin", b.startCNI},
		{"start", b.start},
		{"memory", b.memory},
		{"binary", b.size},
		{"growth", b.growth},
	} {
		if wanted.MatchString(part.name) {
			fmt.Fprintf(os.Stderr, "bench: %s\n", part.name)
			part.do()
		}
	}
	failIf(os.RemoveAll(b.dir))
}

// install copies the programs, as an installation does: Linux caches what the linker has written page by page, and each
// start of such a file takes a tenth longer than that of its copy.
func (b *bench) install() {
	dir := filepath.Join(b.dir, "programs")
	failIf(os.MkdirAll(dir, 0o755))
	copied := func(path string) string {
		to := filepath.Join(dir, filepath.Base(path))
		failIf(os.WriteFile(to, must(os.ReadFile(path)), 0o755))
		return to
	}
	b.binary, b.cni = copied(b.binary), copied(b.cni)
	b.plugins = filepath.Dir(copied(filepath.Join(b.plugins, "host-local")))
}

// failure is an error that ends the benchmark, after all deferred calls.
type failure struct{ error }

// failIf ends the benchmark if there is an error.
func failIf(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns a value, or ends the benchmark with the error.
func must[T any](value T, err error) T {
	failIf(err)
	return value
}

// catch returns the error with which work would end the benchmark.
func catch(work func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	work()
	return nil
}
