// Command model checks test/model/protocol.pml with spin: each configuration exhaustively,
// and that each mutant, which lacks one rule or one assumption of the protocol, fails. It
// prints a table and ends with exit status 1 if a configuration fails or a mutant passes.
//
// It needs spin and a C compiler. docs/design/model.md explains the model.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
)

func main() {
	only := flag.String("only", "", "check only the cases that match, such as \"node|NO_LATE_DEL\" (default: all)")
	jobs := flag.Int("jobs", 2, "cases that are checked concurrently; each needs up to 3 GiB of memory")
	flag.Parse()
	if err := run(flag.Arg(0), *only, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
}

// run checks the cases whose names match, concurrently.
func run(model, only string, jobs int) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if model == "" {
		return fmt.Errorf("no model; expected the path of protocol.pml as argument")
	}
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w; install Debian's packages spin and gcc", err)
		}
	}
	var chosen []check
	for _, c := range append(configurations(), mutants()...) {
		if wanted.MatchString(c.name) {
			chosen = append(chosen, c)
		}
	}
	results := make([]result, len(chosen))
	var workers sync.WaitGroup
	slots := make(chan struct{}, max(1, jobs))
	for i, c := range chosen {
		workers.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = c.run(model)
		})
	}
	workers.Wait()
	return report(os.Stdout, chosen, results)
}
