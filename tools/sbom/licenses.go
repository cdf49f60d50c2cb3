package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"
)

// terms matches the names of licences, notices and patent grants; license matches those of licences.
var (
	terms   = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)
	license = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)
)

// writeLicenses writes the terms of Go and of the modules in a program, each text once, after the names
// of the files that contain it. A module without a licence is an error.
func writeLicenses(w io.Writer, info *debug.BuildInfo) error {
	out, err := exec.Command("go", "env", "-json", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	var env struct{ GOROOT, GOMODCACHE string }
	if err := json.Unmarshal(out, &env); err != nil {
		return err
	}
	var texts []string
	files := map[string]string{}
	// The licences of tools below GOROOT are not those of the standard library.
	add := func(name, dir string, recursive bool) error {
		licensed := false
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != dir && !recursive:
				return fs.SkipDir
			case d.IsDir() || !terms.MatchString(d.Name()) || filepath.Ext(path) == ".go":
				return nil
			}
			content, err := os.ReadFile(path)
			text := strings.TrimSpace(strings.ReplaceAll(string(content), "\r\n", "\n"))
			if files[text] == "" {
				texts = append(texts, text)
			}
			files[text] += name + strings.TrimPrefix(path, dir) + "\n"
			licensed = licensed || filepath.Dir(path) == dir && license.MatchString(d.Name())
			return err
		})
		if err == nil && !licensed {
			err = errors.New("expected a licence in " + dir)
		}
		return err
	}
	if err := add(info.GoVersion, env.GOROOT, false); err != nil {
		return err
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		path, err := module.EscapePath(m.Path)
		if err != nil {
			return err
		}
		version, err := module.EscapeVersion(m.Version)
		if err != nil {
			return err
		}
		name := m.Path + "@" + m.Version
		if err := add(name, filepath.Join(env.GOMODCACHE, filepath.FromSlash(path)+"@"+version), true); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for i, text := range texts {
		if i > 0 {
			fmt.Fprintln(w, strings.Repeat("-", 80))
		}
		if _, err := fmt.Fprintf(w, "%s\n%s\n", files[text], text); err != nil {
			return err
		}
	}
	return nil
}
