package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// result is the result of a run.
type result struct {
	// states, transitions and depth describe the search that decided.
	states, transitions, depth int
	// violated is the assertion of the counterexample; empty if there is none.
	violated string
	// err is set if the run decides nothing.
	err error
}

// depths are tried in turn for a mutant, so that its counterexample is short. The last
// one is far above the depth that any run reaches: a search that hits it is incomplete.
var depths = []int{45, 60, 80, 100, 150, 200, 300, 100000}

var (
	statesLine      = regexp.MustCompile(`(?m)^\s*([\d.e+]+) states, stored`)
	transitionsLine = regexp.MustCompile(`(?m)^\s*([\d.e+]+) transitions`)
	depthLine       = regexp.MustCompile(`depth reached (\d+)`)
	violatedLine    = regexp.MustCompile(`assertion violated\W+(\w+)\W+at depth (\d+)`)
	errorsLine      = regexp.MustCompile(`errors: (\d+)`)
)

// run builds a verifier of the model in a new directory and runs it.
func (c check) run(model string) result {
	dir, err := os.MkdirTemp("", "model-")
	if err != nil {
		return result{err: err}
	}
	defer os.RemoveAll(dir)
	pan, err := c.build(dir, model)
	if err != nil {
		return result{err: err}
	}
	if c.violated == "" {
		return search(dir, pan, depths[len(depths)-1])
	}
	var r result
	for _, depth := range depths {
		if r = search(dir, pan, depth); r.violated != "" {
			return r
		}
	}
	return r
}

// build compiles the verifier. Without -DBITSTATE and the like its search is exhaustive.
func (c check) build(dir, model string) (pan string, err error) {
	model, err = filepath.Abs(model)
	if err != nil {
		return "", err
	}
	optimize := "-O2"
	if c.violated != "" {
		optimize = "-O0" // its search is short, and the compiler takes longer
	}
	for _, command := range [][]string{
		append(append([]string{"spin"}, c.flags...), "-a", model),
		{"gcc", optimize, "-w", "-DSAFETY", "-DNOFAIR", "-DMEMLIM=3000", "-o", "pan", "pan.c"},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
		}
	}
	return filepath.Join(dir, "pan"), nil
}

// search runs a verifier to a depth. -E leaves invalid end states to a property of the model.
func search(dir, pan string, depth int) result {
	cmd := exec.Command(pan, "-E", "-w22", fmt.Sprintf("-m%d", depth))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			return result{err: err}
		}
	}
	return read(string(out), depth == depths[len(depths)-1])
}

// read parses the output of a verifier. An incomplete search decides nothing unless it found a
// counterexample; only the last search of a run has to be complete.
func read(out string, last bool) result {
	r := result{states: number(statesLine, out), transitions: number(transitionsLine, out), depth: number(depthLine, out)}
	if m := violatedLine.FindStringSubmatch(out); m != nil {
		r.violated = m[1]
		r.depth, r.err = strconv.Atoi(m[2])
		return r
	}
	switch {
	case !errorsLine.MatchString(out):
		r.err = fmt.Errorf("the verifier printed no result: %s", out)
	case number(errorsLine, out) > 0:
		r.err = fmt.Errorf("the verifier found another error than an assertion: %s", out)
	case strings.Contains(out, "out of memory"), strings.Contains(out, "Search not completed"), last && strings.Contains(out, "max search depth too small"):
		r.err = errors.New("the search is not complete; reduce the bounds, or give it more memory")
	}
	return r
}

func number(line *regexp.Regexp, out string) int {
	m := line.FindStringSubmatch(out)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64) // from 100 million on it is 1.1210678e+08
	if err != nil {
		return 0
	}
	return int(n)
}
