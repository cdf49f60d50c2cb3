// Package goinstall tests that "go install …/cmd/NAME@VERSION" works with a tag of this repository.
package goinstall

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// root is the directory of the repository.
const root = "../.."

// tagged is the module in the version that the test pretends to have tagged.
var tagged = module.Version{Path: "github.com/delegated-ipam/delegated-ipam", Version: "v0.1.0"}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// command runs a program with variables in its environment and returns its output.
func command(t *testing.T, environ []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), environ...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// TestGoInstall serves the committed tree as a proxy would serve the tag. The proxy of the modules that
// it needs is the module cache, so the test needs no network.
func TestGoInstall(t *testing.T) {
	dir := t.TempDir()
	writeProxy(t, filepath.Join(dir, "proxy"))
	cache := command(t, nil, "go", "env", "GOMODCACHE")
	// -modcacherw: the test removes its cache.
	environ := []string{
		"GOPROXY=file://" + filepath.Join(dir, "proxy") + ",file://" + filepath.Join(cache, "cache", "download"),
		"GOSUMDB=off", "GOFLAGS=-trimpath -modcacherw", "CGO_ENABLED=0", "GOBIN=" + filepath.Join(dir, "bin"), "GOMODCACHE=" + filepath.Join(dir, "cache"),
		"GOTOOLCHAIN=local", "GOWORK=off",
	}
	for _, name := range []string{"delegated-ipam", "delegated-ipam-bridge", "delegated-ipam-cri"} {
		command(t, environ, "go", "install", tagged.Path+"/cmd/"+name+"@"+tagged.Version)
		got := command(t, nil, filepath.Join(dir, "bin", name), "version")
		if want := name + " version " + tagged.Version + " ("; !strings.HasPrefix(got, want) {
			t.Errorf("%s version prints %q; want %q at its beginning", name, got, want)
		}
	}
	// A CNI plugin has no arguments.
	command(t, environ, "go", "install", tagged.Path+"/cmd/delegated-ipam-cni@"+tagged.Version)
	got := command(t, nil, "sh", "-c", `"$0" 2>&1`, filepath.Join(dir, "bin", "delegated-ipam-cni"))
	if want := "CNI plugin delegated-ipam-cni " + tagged.Version + "\n"; !strings.HasPrefix(got, want) {
		t.Errorf("delegated-ipam-cni prints %q; want %q at its beginning", got, want)
	}
}

// writeProxy writes what a module proxy serves for the tag (https://go.dev/ref/mod#goproxy-protocol).
func writeProxy(t *testing.T, dir string) {
	t.Helper()
	dir = filepath.Join(dir, filepath.FromSlash(tagged.Path), "@v")
	must(t, os.MkdirAll(dir, 0o755))
	tree := committed(t)
	archive, err := os.Create(filepath.Join(dir, tagged.Version+".zip"))
	must(t, err)
	must(t, zip.CreateFromDir(archive, tagged, tree))
	must(t, archive.Close())
	info, err := json.Marshal(map[string]string{"Version": tagged.Version})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, tagged.Version+".info"), info, 0o644))
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, tagged.Version+".mod"), mod, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "list"), []byte(tagged.Version+"\n"), 0o644))
}

// committed returns a directory with the files of the last commit.
func committed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(t.TempDir(), "tree.tar")
	command(t, nil, "git", "-C", root, "archive", "--output", archive, "HEAD")
	command(t, nil, "tar", "-x", "-f", archive, "-C", dir)
	return dir
}
