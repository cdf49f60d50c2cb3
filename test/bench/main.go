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
	"os"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/test/benchpage"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == floorCommand {
		exit(serveFloor(os.Args[2]))
	}
	var o options
	flag.StringVar(&o.binary, "binary", "bin/delegated-ipam", "the daemon as it is shipped")
	flag.StringVar(&o.cni, "cni", "bin/delegated-ipam-cni", "the CNI plugin as it is shipped")
	flag.StringVar(&o.plugins, "plugins", ".cache/plugins", "directory with the real host-local")
	flag.StringVar(&o.cilium, "cilium", ".cache/bench/cilium", "server of test/programs/cilium-ipam; without the file its row is left out")
	flag.StringVar(&o.dir, "dir", ".cache/bench/run", "directory for state and store, on the file system to measure; it is emptied")
	flag.StringVar(&o.page, "page", "", "Markdown page in which the tables between the marks are replaced (default none)")
	flag.IntVar(&o.pairs, "pairs", 300, "pairs of runs of each case")
	flag.StringVar(&o.only, "only", "", "measure only the parts whose printed names match this regular expression")
	flag.Parse()
	exit(catch(func() { run(o) }))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// options are the flags.
type options struct {
	binary, cni, plugins, cilium, dir, page, only string

	pairs int
}

// run measures everything, prints it and writes the page.
func run(o options) {
	for _, path := range []*string{&o.binary, &o.cni, &o.plugins, &o.cilium, &o.dir} {
		*path = must(filepath.Abs(*path))
	}
	b := &bench{options: o, report: report{Machine: must(benchpage.Machine(filepath.Dir(o.dir))), Pairs: o.pairs}}
	b.measure()
	fmt.Print(b.report.markdown())
	if o.page != "" {
		failIf(benchpage.Replace(o.page, "make bench", b.report.markdown()))
	}
}
