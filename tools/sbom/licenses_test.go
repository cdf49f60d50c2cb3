package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestLicenses(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("no build information")
	}
	var b bytes.Buffer
	if err := writeLicenses(&b, info); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		info.GoVersion + "/LICENSE\n", "\ngithub.com/google/uuid@v1.6.0/LICENSE\n",
		"\ngithub.com/CycloneDX/cyclonedx-go@v0.9.3/NOTICE\n", "Copyright (c) 2009,2014 Google Inc.",
	} {
		if strings.Count(b.String(), want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, b.String())
		}
	}
}

func TestUnlicensed(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("GOMODCACHE", cache)
	m := &debug.Module{Path: "example.com/A", Version: "v1.0.0"}
	// A licence of a part is not one of the module.
	dir := filepath.Join(cache, "example.com", "!a@v1.0.0", "part")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LICENSE", "../license.go", "../NOTICE"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, deps := range [][]*debug.Module{{m}, {{Path: "example.com/b", Replace: m}}, {{Path: "example.com/missing", Version: "v1.0.0"}}} {
		if err := writeLicenses(io.Discard, &debug.BuildInfo{Deps: deps}); err == nil || !strings.Contains(err.Error(), "example.com/") {
			t.Errorf("error %v; want one that names the module", err)
		}
	}
}
