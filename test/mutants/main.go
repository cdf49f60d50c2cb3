// Command mutants measures the tests by mutation: it changes one place of a package at a time,
// runs the tests of the package, and prints the share of the changes that a test detects. Each
// argument is the directory of a package; the packages below it belong to it.
//
// The sample is random and follows from the seed and the source alone. Source files are never
// written: each mutant is built with "go test -overlay".
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	var o options
	flag.IntVar(&o.count, "count", 200, "number of mutants, the same for each package")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample")
	flag.IntVar(&o.jobs, "jobs", 2, "number of mutants that are tested concurrently")
	flag.Parse()
	if flag.NArg() == 0 || o.count < flag.NArg() || o.jobs < 1 {
		fmt.Fprintln(os.Stderr, "usage: mutants [-count N] [-seed N] [-jobs N] DIR...")
		os.Exit(2)
	}
	if err := run(o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	count int
	seed  uint64
	jobs  int
}

// run tests a sample of each package and prints the results.
func run(o options, directories []string) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var all []score
	for i, directory := range directories {
		wanted := o.count*(i+1)/len(directories) - o.count*i/len(directories)
		s, err := testPackage(&runner{directory: directory, scratch: dir}, o, wanted)
		if err != nil {
			return fmt.Errorf("%s: %w", directory, err)
		}
		all = append(all, s)
	}
	report(os.Stdout, o.seed, all)
	return nil
}

// report prints the surviving mutants, and the share that was killed by package and in total.
func report(w io.Writer, seed uint64, all []score) {
	total := score{directory: "total"}
	for _, s := range all {
		for _, m := range s.survived {
			fmt.Fprintf(w, "survived: %v\n", m)
		}
		total.tested += s.tested
		total.sites += s.sites
		total.survived = append(total.survived, s.survived...)
	}
	fmt.Fprintf(w, "\n| package | mutants | killed | share | drawn from |\n|---|---|---|---|---|\n")
	for _, s := range append(all, total) {
		killed := s.tested - len(s.survived)
		fmt.Fprintf(w, "| %s | %d | %d | %.0f %% | %d |\n", s.directory, s.tested, killed, 100*float64(killed)/float64(max(1, s.tested)), s.sites)
	}
	fmt.Fprintf(w, "\nseed %d\n", seed)
}
