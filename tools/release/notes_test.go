package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNotes(t *testing.T) {
	const text = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- next\n\n## [1.1.0] - 2026-12-01\n\n### Fixed\n\n- b\n\n## [1.0.1] - soon\n\n- c\n\n" +
		"## [1.0.0] - 2026-11-01\n\n## [1.0.0-rc.1] - 2026-10-01\n\n- first\n"
	for v, c := range map[string]struct{ want, err string }{
		"v1.1.0":          {want: "### Fixed\n\n- b"},
		"v1.0.0-rc.1":     {want: "- first"},
		"v1.0.0":          {err: "is empty"},
		"v1.0.1":          {err: `the date "soon"`},
		"v1.2.0":          {err: `no section "## [1.2.0]`},
		"v1.1.0-rc.1":     {err: "no section"},
		"v1.2.0-snapshot": {want: "### Added\n\n- next"},
	} {
		t.Run(v, func(t *testing.T) {
			r := release{version: version(v), root: t.TempDir(), out: t.TempDir()}
			must(t, os.WriteFile(filepath.Join(r.root, changelog), []byte(text), 0o600))
			got, err := r.notes()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v; want %q", err, c.err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
			must(t, r.writeNotes())
			page, err := os.ReadFile(filepath.Join(r.out, notesFile))
			must(t, err)
			if !strings.HasPrefix(string(page), c.want+"\n\n## Files\n") || !strings.Contains(string(page), "of the tag "+v+".") {
				t.Errorf("the page is %q; want the section and the files", page)
			}
		})
	}
}
