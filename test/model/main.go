// Command model explores the protocol exhaustively within bounds, for each kind of plugin, and checks that
// the exploration fails without each rule. Its assumptions are in explore/main.go. It prints a table, and a
// trace for each violation.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

func main() {
	only := flag.String("only", "", "only the configurations and rules that match, such as \"local|tombstone\" (default: all)")
	draw := flag.Bool("draw", false, "write the states that were seen to the diagram of "+diagramPage)
	removeRules := flag.Bool("rules", true, "also explore without each rule")
	flag.Parse()
	if err := run(*only, *draw, *removeRules); err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
}

// diagramPage has the diagram of the states, which a whole exploration compares with those that it has seen.
const diagramPage = "docs/design/how-it-works.md"

// packageDoc has the table of what follows a kill at each step.
const packageDoc = "internal/daemon/attachment/doc.go"

// run explores what matches: each configuration with the protocol as it is and, if asked, without each rule.
func run(only string, draw, removeRules bool) error {
	matches, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	scratch, err := os.MkdirTemp("", "model-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	whole, err := build(scratch, "whole", nil)
	if err != nil {
		return err
	}
	explore := exec.Command(whole, "-only", only)
	if only == "" {
		explore.Args = append(explore.Args, "-diagram", diagramPage, "-moments", packageDoc, fmt.Sprintf("-draw=%t", draw))
	}
	explore.Stdout, explore.Stderr = os.Stdout, os.Stderr
	failed := explore.Run()
	var wrong []string
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, 2)
	for i, r := range rules {
		if !removeRules || !matches.MatchString(r.name) {
			continue
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found, err := r.explore(scratch, fmt.Sprint("rule", i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				wrong = append(wrong, r.name)
				found = err.Error()
			}
			fmt.Printf("without %-48s %s\n", r.name, found)
		})
	}
	all.Wait()
	if len(wrong) > 0 {
		failed = errors.Join(failed, fmt.Errorf("no violation without: %s", strings.Join(wrong, ", ")))
	}
	return failed
}

// explore explores without the rule, and returns the violation; an error if there is none.
func (r rule) explore(scratch, name string) (found string, err error) {
	program, err := build(scratch, name, r.edits)
	if err != nil {
		return "", err
	}
	out, err := exec.Command(program, append([]string{"-exact", "-only", r.in}, strings.Fields(r.bounds)...)...).Output()
	first, _, _ := strings.Cut(string(out), "\n")
	if err == nil || !strings.Contains(first, r.violates) {
		return "", fmt.Errorf("%s; want a violation: %s", strings.TrimSpace(first), r.violates)
	}
	return strings.TrimSpace(first), nil
}

// build builds the exploration of the protocol with edits of its source, and returns the program.
func build(scratch, name string, edits []edit) (program string, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	changed, err := apply(root, slices.Concat(edits, limits))
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, source := range changed {
		to := filepath.Join(scratch, name+"-"+filepath.Base(file))
		if err := os.WriteFile(to, []byte(source), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[file] = to
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	program = filepath.Join(scratch, name)
	if err := os.WriteFile(program+".json", list, 0o600); err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-overlay", program+".json", "-o", program, "./test/model/explore").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, nil
}

// apply returns the files of the protocol that edits change, by path, with their new source. The
// repository is in root; each edit must find its text once.
func apply(root string, edits []edit) (changed map[string]string, err error) {
	changed = map[string]string{}
	for _, e := range edits {
		file := filepath.Join(root, "internal/daemon/attachment", e.file)
		source, ok := changed[file]
		if !ok {
			read, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			source = string(read)
		}
		if n := strings.Count(source, e.old); n != 1 {
			return nil, fmt.Errorf("%s has %d times %q; want once", e.file, n, e.old)
		}
		changed[file] = strings.Replace(source, e.old, e.with, 1)
	}
	return changed, nil
}
