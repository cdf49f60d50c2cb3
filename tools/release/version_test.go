package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseVersion(t *testing.T) {
	for text, ok := range map[string]bool{
		"v0.1.0": true, "v1.2.3-rc.1": true, "v0.0.0-snapshot": true, "v10.20.30": true,
		"": false, "0.1.0": false, "v1": false, "v1.2": false, "v1.2.3.4": false, "v01.2.3": false, "v1.2.3-": false, "v1.2.3-rc.01": false,
		"v1.2.3+linux": false, "v1.2.3-rc_1": false, "v1.2.3 ": false, "f257b3e-dirty": false, "v1.2.3/../x": false,
	} {
		v, err := parseVersion(text)
		if ok != (err == nil) || ok && string(v) != text || !ok && !strings.Contains(err.Error(), "expected vMAJOR.MINOR.PATCH") {
			t.Errorf("%q: got %q, %v; want it accepted: %t", text, v, err, ok)
		}
	}
}

func TestSnapshot(t *testing.T) {
	for text, want := range map[string]bool{"v1.2.3": false, "v1.2.3-rc.1": false, "v1.2.3-snapshot": true, "v1.2.3-snapshot.7": true, "v1.2.3-rc.snapshot": false} {
		if got := version(text).snapshot(); got != want {
			t.Errorf("%s: got %t; want %t", text, got, want)
		}
	}
}

// commands runs git commands in a directory; the words of each are separated by spaces.
func commands(t *testing.T, dir string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		cmd := exec.Command("git", strings.Fields(line)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", line, err, out)
		}
	}
}

func TestCheckCheckout(t *testing.T) {
	for name, c := range map[string]struct {
		commands []string
		file     string
		version  string
		want     string
	}{
		"clean":                       {version: "v1.0.0"},
		"tag of this commit":          {commands: []string{"tag v1.0.0"}, version: "v1.0.0"},
		"annotated tag":               {commands: []string{"tag -m text v1.0.0"}, version: "v1.0.0"},
		"tag of another commit":       {commands: []string{"tag v1.0.0", "commit -q --allow-empty -m second"}, version: "v1.0.0", want: "the tag v1.0.0 is another commit"},
		"annotated tag of another":    {commands: []string{"tag -m text v1.0.0", "commit -q --allow-empty -m second"}, version: "v1.0.0", want: "another commit"},
		"another tag":                 {commands: []string{"tag v1.0.0", "commit -q --allow-empty -m second"}, version: "v1.0.1"},
		"branch with the name":        {commands: []string{"branch v1.0.0", "commit -q --allow-empty -m second"}, version: "v1.0.0"},
		"new file":                    {file: "new", version: "v1.0.0", want: "the checkout has changes"},
		"changed file":                {file: "tracked", version: "v1.0.0", want: "tracked"},
		"changed file, a pre-release": {file: "tracked", version: "v1.0.0-rc.1", want: "tracked"},
		"changed file, a snapshot":    {file: "tracked", version: "v1.0.0-snapshot"},
		"ignored file":                {file: "ignored.tar", version: "v1.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			commands(t, dir, "init -q")
			must(t, os.WriteFile(filepath.Join(dir, "tracked"), []byte("a"), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*.tar\n"), 0o600))
			commands(t, dir, append([]string{"add .", "commit -q -m first"}, c.commands...)...)
			if c.file != "" {
				must(t, os.WriteFile(filepath.Join(dir, c.file), []byte("b"), 0o600))
			}
			err := version(c.version).checkCheckout(dir)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want %q", err, c.want)
			}
		})
	}
}

func TestNoClone(t *testing.T) {
	dir := t.TempDir()
	if err := version("v1.0.0").checkCheckout(dir); err == nil || !strings.Contains(err.Error(), "expected a clone") {
		t.Errorf("error %v; want one that expects a clone", err)
	}
	if err := version("v1.0.0-snapshot").checkCheckout(dir); err != nil {
		t.Errorf("a snapshot: %v", err)
	}
}

func TestRunRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"no version":    {"-check"},
		"other version": {"-check", "-version", "1.0"},
		"no output":     {"-version", "v1.0.0-snapshot", "-root", root},
		"unknown flag":  {"-tag", "v1.0.0"},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := run([]string{"-check", "-version", "v1.0.0-snapshot", "-root", root}, io.Discard); err != nil {
		t.Errorf("check of a snapshot: %v", err)
	}
}
