package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// score is the result of one package.
type score struct {
	directory string
	// tested is the number of mutants, survived those that no test detects.
	tested   int
	survived []mutant
	// sites is the number of mutants from which the sample is drawn.
	sites int
}

// testPackage draws mutants that compile and runs the tests of the package with each.
func testPackage(r runner, o options, wanted int) (score, error) {
	all, err := mutantsOf(r.directory)
	if err != nil {
		return score{}, err
	}
	began := time.Now()
	if out, err := r.command(context.Background(), "test", nil); err != nil {
		return score{}, fmt.Errorf("the tests fail without a mutant: %w\n%s", err, out)
	}
	// A mutant may loop. Two run concurrently, and each is compiled first.
	limit := 3*time.Since(began) + time.Minute
	dice := rand.New(rand.NewPCG(o.seed, 0))
	dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var chosen []mutant
	for i := 0; i < len(all) && len(chosen) < wanted; i++ {
		if _, err := r.command(context.Background(), "build", &all[i]); err == nil {
			chosen = append(chosen, all[i])
		}
	}
	return score{r.directory, len(chosen), r.survivors(chosen, o.jobs, limit), len(all)}, nil
}

// runner runs the go command on a package.
type runner struct {
	directory string
	// scratch is a directory for changed source files.
	scratch string
}

// survivors returns the mutants with which the tests succeed.
func (r runner) survivors(mutants []mutant, jobs int, limit time.Duration) []mutant {
	survived := make([]bool, len(mutants))
	slots := make(chan struct{}, jobs)
	var all sync.WaitGroup
	for i := range mutants {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			_, err := r.command(ctx, "test", &mutants[i])
			survived[i] = err == nil
			fmt.Fprintf(os.Stderr, "%s: %v\n", map[bool]string{true: "survived", false: "killed"}[err == nil], mutants[i])
		})
	}
	all.Wait()
	var left []mutant
	for i, m := range mutants {
		if survived[i] {
			left = append(left, m)
		}
	}
	return left
}

// command builds or tests the package, with a mutant if there is one. It ends with all its
// processes when the context does.
func (r runner) command(ctx context.Context, verb string, m *mutant) ([]byte, error) {
	args := []string{verb}
	if verb == "test" {
		args = append(args, "-count=1", "-failfast", "-vet=off", "-timeout=0")
	}
	if m != nil {
		overlay, err := r.overlay(*m)
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(filepath.Dir(overlay))
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+filepath.ToSlash(r.directory)+"/...")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	return out.Bytes(), err
}

// overlay writes the changed file and the description with which the go command uses it in
// place of the real one.
func (r runner) overlay(m mutant) (string, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	real, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(r.scratch, "")
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(m.file))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{real: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(changed, m.apply(source), 0o600); err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}
