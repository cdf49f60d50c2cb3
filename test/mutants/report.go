package main

import (
	"fmt"
	"io"
)

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
