package layers

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// usedAction is an action that a workflow uses, with the rest of the line.
	usedAction = regexp.MustCompile(`(?m)^\s*(?:- )?uses: +(\S+?)@(.+)$`)
	// pinned is a commit and the version that a comment names.
	pinned = regexp.MustCompile(`^[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	// goVersion is the version of Go that a workflow installs, and goLine the version in go.mod.
	goVersion = regexp.MustCompile(`(?m)^ +go-version: "(.+)"$`)
	goLine    = regexp.MustCompile(`(?m)^go (\d+\.\d+)`)
	// topPermissions are the permissions of all jobs of a workflow.
	topPermissions = regexp.MustCompile(`(?m)^permissions:(?: \{\}|\n  contents: read)\n\S`)
	// writePermission is a permission of a job to change something.
	writePermission = regexp.MustCompile(`(?m)^ +([\w-]+: write)$`)
)

// A tag of an action can be moved, and a token that may write is a way into the releases.
func TestWorkflows(t *testing.T) {
	workflows := files(t, ".github/workflows", ".yml")
	commits := map[string]string{}
	var writes []string
	for path, text := range workflows {
		for _, m := range usedAction.FindAllStringSubmatch(text, -1) {
			action, commit := m[1], m[2]
			if !pinned.MatchString(commit) {
				t.Errorf("%s uses %s at %q; want a commit and its version, such as 0123…cdef # v1.2.3", path, action, commit)
			}
			if other := commits[action]; other != "" && other != commit {
				t.Errorf("%s is used at %s and at %s; want one of them", action, commit, other)
			}
			commits[action] = commit
		}
		// The newest patch release, which go.mod does not name.
		for _, m := range goVersion.FindAllStringSubmatch(text, -1) {
			if want := goLine.FindStringSubmatch(read(t, "go.mod"))[1]; m[1] != want {
				t.Errorf("%s installs Go %s; want %s, as go.mod", path, m[1], want)
			}
		}
		if !topPermissions.MatchString(text) {
			t.Errorf("%s does not begin with the permissions {} or contents: read", path)
		}
		for _, m := range writePermission.FindAllStringSubmatch(text, -1) {
			writes = append(writes, strings.TrimPrefix(path, ".github/workflows/")+" "+m[1])
		}
	}
	if want := []string{"release.yml contents: write"}; !slices.Equal(writes, want) {
		t.Errorf("permissions to write: %q; want %q", writes, want)
	}
	if len(commits) == 0 || len(workflows) == 0 {
		t.Errorf("found %d workflows and %d actions; nothing is checked", len(workflows), len(commits))
	}
}

// A check of all modules leaves none out.
func TestModules(t *testing.T) {
	makefile := read(t, "Makefile")
	listed := regexp.MustCompile(`(?m)^MODULES +:= ((?:.*\\\n)*.*)$`).FindStringSubmatch(makefile)
	if listed == nil {
		t.Fatal("the Makefile has no MODULES")
	}
	var want []string
	for path := range files(t, ".", "go.mod") {
		want = append(want, filepath.Dir(path))
	}
	got := strings.Fields(strings.ReplaceAll(listed[1], "\\\n", " "))
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("MODULES are %q; want %q", got, want)
	}
	for _, target := range []string{"vulncheck", "tidy-check"} {
		if !regexp.MustCompile(`(?m)^` + target + `:.*\n\t@for module in \$\(MODULES\);`).MatchString(makefile) {
			t.Errorf("make %s does not check each of MODULES", target)
		}
	}
}
