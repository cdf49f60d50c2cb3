// Command bench measures the cost of the daemon: the real binary over the real host-local,
// compared with the bare plugin, a server that does nothing and, if it has been built, Cilium's
// allocator. It prints its tables and writes them into docs/reference/performance.md.
//
// Runs of ours and of the reference alternate, so that load on the machine affects both. The
// medians are compared.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sync/errgroup"

	"github.com/delegated-ipam/delegated-ipam/test/benchpage"
)

// options are the flags.
type options struct{ binary, cni, plugins, cilium, dir, page, only string }

// bench is one run of the whole benchmark.
type bench struct {
	options
	report
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == floorCommand {
		log.Fatal(serveFloor(os.Args[2]))
	}
	var b bench
	flag.StringVar(&b.binary, "binary", "bin/delegated-ipam", "the daemon as it is shipped")
	flag.StringVar(&b.cni, "cni", "bin/delegated-ipam-cni", "the CNI plugin as it is shipped")
	flag.StringVar(&b.plugins, "plugins", ".cache/plugins", "directory with the real host-local")
	flag.StringVar(&b.cilium, "cilium", ".cache/bench/cilium", "server of test/programs/cilium-ipam; without the file its row is left out")
	flag.StringVar(&b.dir, "dir", ".cache/bench/run", "directory for state and store, on the file system to measure; it is emptied")
	flag.StringVar(&b.page, "page", "", "Markdown page PAGE.md in which the tables between the marks are replaced, with charts in PAGE (default none)")
	flag.IntVar(&b.pairs, "pairs", 300, "pairs of runs of each case")
	flag.StringVar(&b.only, "only", "", "measure only the parts whose printed names match this regular expression")
	flag.Parse()
	if err := catch(b.run); err != nil {
		log.Fatalln("bench:", err)
	}
}

// run measures every row and the growth, prints them and writes the page.
func (b *bench) run() {
	for _, path := range []*string{&b.binary, &b.cni, &b.plugins, &b.cilium, &b.dir} {
		*path = must(filepath.Abs(*path))
	}
	wanted := must(regexp.Compile(b.only))
	b.machine = must(benchpage.Machine(filepath.Dir(b.dir)))
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
		{"growth", b.measureGrowth},
	} {
		if wanted.MatchString(part.name) {
			fmt.Fprintf(os.Stderr, "bench: %s\n", part.name)
			part.do()
		}
	}
	failIf(os.RemoveAll(b.dir))
	fmt.Print(b.markdown())
	if b.page != "" {
		b.write(b.page)
	}
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

// failIf ends the benchmark if there is an error, after all deferred calls.
func failIf(err error) {
	if err != nil {
		panic(err)
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
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	work()
	return nil
}

// concurrently does the work of n clients at one time.
func concurrently(n int, work func(client int)) {
	var group errgroup.Group
	for i := range n {
		group.Go(func() error { return catch(func() { work(i) }) })
	}
	failIf(group.Wait())
}
