package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
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
func testPackage(r *runner, o options, wanted int) (score, error) {
	all, err := mutantsOf(r.directory)
	if err != nil {
		return score{}, err
	}
	// The packages, without and with property tests.
	out, err := r.command(context.Background(), []string{"list", "-f", `{{.ImportPath}} {{.TestImports}} {{.XTestImports}}`}, nil, r.pattern())
	if err != nil {
		return score{}, fmt.Errorf("go list: %w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		name, imports, _ := strings.Cut(line, " ")
		if strings.Contains(imports, "pgregory.net/rapid") {
			r.property = append(r.property, name)
		} else {
			r.plain = append(r.plain, name)
		}
	}
	began := time.Now()
	if out, err := r.test(context.Background(), nil); err != nil {
		return score{}, fmt.Errorf("the tests fail without a mutant: %w\n%s", err, out)
	}
	// A mutant may loop. Two run concurrently, and each is compiled first.
	limit := 3*time.Since(began) + time.Minute
	dice := rand.New(rand.NewPCG(o.seed, 0))
	dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var chosen []mutant
	for i := 0; i < len(all) && len(chosen) < wanted; i++ {
		if _, err := r.command(context.Background(), []string{"build"}, &all[i], r.pattern()); err == nil {
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
	// plain and property are the packages in the directory, without and with property tests.
	plain, property []string
}

// pattern returns the packages in the directory as the go command names them.
func (r *runner) pattern() string { return "./" + filepath.ToSlash(r.directory) + "/..." }

// test runs the tests of the packages. Property tests use the same cases each time, and leave no
// file with which a run of another mutant would begin.
func (r *runner) test(ctx context.Context, m *mutant) (out []byte, err error) {
	verb := []string{"test", "-count=1", "-failfast", "-vet=off", "-timeout=0"}
	if len(r.plain) > 0 {
		out, err = r.command(ctx, verb, m, r.plain...)
	}
	if err == nil && len(r.property) > 0 {
		packages := append(slices.Clone(r.property), "-args", "-rapid.nofailfile", "-rapid.seed=1")
		out, err = r.command(ctx, verb, m, packages...)
	}
	return out, err
}

// survivors returns the mutants with which the tests succeed.
func (r *runner) survivors(mutants []mutant, jobs int, limit time.Duration) []mutant {
	survived := map[mutant]bool{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(jobs)
	for _, m := range mutants {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			_, err := r.test(ctx, &m)
			mu.Lock()
			defer mu.Unlock()
			survived[m] = err == nil
			fmt.Fprintf(os.Stderr, "%s: %v\n", map[bool]string{true: "survived", false: "killed"}[err == nil], m)
			return nil
		})
	}
	_ = g.Wait()
	return slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !survived[m] })
}

// command runs the go command on packages, maybe with a mutant, until the context ends.
func (r *runner) command(ctx context.Context, args []string, m *mutant, packages ...string) ([]byte, error) {
	args = slices.Clone(args)
	if m != nil {
		overlay, err := r.overlay(*m)
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(filepath.Dir(overlay))
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}

// overlay writes the changed file, and the file with which the go command uses it.
func (r *runner) overlay(m mutant) (string, error) {
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
	changed, name := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{real: changed}})
	return name, errors.Join(err, os.WriteFile(changed, m.apply(source), 0o600), os.WriteFile(name, text, 0o600))
}
