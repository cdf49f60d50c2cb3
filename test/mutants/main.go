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
