package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// workflow is what the tests read of a workflow.
type workflow struct {
	Jobs map[string]struct {
		Needs any
		Steps []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

func readYAML(t *testing.T, path string, to any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, ".github", path))
	must(t, err)
	must(t, yaml.Unmarshal(content, to))
}

// A known vulnerability ends the workflow before there is a release.
func TestVulnerabilityGate(t *testing.T) {
	var w workflow
	readYAML(t, "workflows/release.yml", &w)
	const gate = "vulnerabilities"
	var commands []string
	for _, step := range w.Jobs[gate].Steps {
		commands = append(commands, step.Run)
	}
	if !slices.Contains(commands, "make vulncheck MODULES=.") {
		t.Errorf("the job %s runs %q; want make vulncheck", gate, commands)
	}
	if needs, _ := w.Jobs["draft"].Needs.([]any); !slices.Contains(needs, any(gate)) {
		t.Errorf("the job draft needs %v; want also %s", needs, gate)
	}
	if w.Jobs["push"].Needs != "draft" {
		t.Errorf("the job push needs %v; want the draft", w.Jobs["push"].Needs)
	}
	content, err := os.ReadFile(filepath.Join(root, ".github/workflows/release.yml"))
	must(t, err)
	if regexp.MustCompile(`continue-on-error|\bif:`).Match(content) {
		t.Error("a job of the release may fail or be skipped")
	}
}

func TestUpdates(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	readYAML(t, "dependabot.yml", &config)
	got := map[string][]string{}
	for _, u := range config.Updates {
		got[u.Ecosystem] = append(got[u.Ecosystem], u.Directories...)
	}
	want, ecosystems := map[string][]string{"github-actions": nil}, map[string]string{"go.mod": "gomod", "package.json": "npm"}
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if ecosystem := ecosystems[d.Name()]; ecosystem != "" {
			want[ecosystem] = append(want[ecosystem], "/"+strings.TrimPrefix(strings.TrimPrefix(filepath.Dir(path), root), "/"))
		}
		return err
	}))
	for _, all := range []map[string][]string{got, want} {
		for name := range all {
			slices.Sort(all[name])
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("dependabot.yml updates %v; want %v", got, want)
	}
}

// go.mod has the one version of Go for the workflows and the release.
func TestGoVersion(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must(t, err)
	if !regexp.MustCompile(`(?m)^(toolchain go|go )1\.\d+\.\d+$`).Match(content) {
		t.Error("go.mod has no version of Go with its patch")
	}
	all, err := filepath.Glob(root + "/.github/workflows/*.yml")
	must(t, err)
	for _, path := range all {
		var w workflow
		readYAML(t, filepath.Join("workflows", filepath.Base(path)), &w)
		for name, job := range w.Jobs {
			for _, step := range job.Steps {
				if strings.HasPrefix(step.Uses, "actions/setup-go@") && (step.With["go-version-file"] != "go.mod" || step.With["go-version"] != nil) {
					t.Errorf("%s, %s: Go's version is %v; want that of go.mod", path, name, step.With)
				}
			}
		}
	}
}
