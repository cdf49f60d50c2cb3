// Command bench measures what the sidecar costs: the real binary over the real
// host-local, beside the bare plugin, a server that does nothing and, where it
// has been built, Cilium's own allocator. It prints one table and writes it, with
// two charts, into the documents (docs/performance.md).
//
// Runs of ours and of the reference alternate, so that both meet the same
// machine; what is compared is the medians.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == floorCommand {
		exit(serveFloor(os.Args[2]))
	}
	var o options
	flag.StringVar(&o.binary, "binary", "bin/delegated-ipam", "the sidecar, built as it is shipped")
	flag.StringVar(&o.plugins, "plugins", ".cache/plugins", "folder with the real host-local")
	flag.StringVar(&o.cilium, "cilium", ".cache/bench/cilium", "server of test/programs/cilium-ipam; its row is left out if the file is not there")
	flag.StringVar(&o.dir, "dir", ".cache/bench/run", "folder for state and store, on the file system to be measured; it is emptied")
	flag.StringVar(&o.page, "page", "", "Markdown page whose part between the marks is replaced; none if empty")
	flag.IntVar(&o.pairs, "pairs", 300, "pairs of runs of each case")
	flag.StringVar(&o.only, "only", "", "regular expression of the parts to be measured, as they are printed; all if empty")
	flag.Parse()
	exit(run(o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// options are what the command line says.
type options struct {
	binary, plugins, cilium, dir, page, only string

	pairs int
}

// run measures everything, prints it and writes the documents.
func run(o options) error {
	for _, path := range []*string{&o.binary, &o.plugins, &o.cilium, &o.dir} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	machine, err := describe(filepath.Dir(o.dir))
	if err != nil {
		return err
	}
	b := &bench{options: o, report: report{Machine: machine, Pairs: o.pairs}}
	if err := b.measure(); err != nil {
		return err
	}
	fmt.Print(b.report.markdown())
	if o.page == "" {
		return nil
	}
	return b.report.write(o.page)
}
