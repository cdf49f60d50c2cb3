package deploy

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const (
	patches = "../../../deploy/cilium/agent/"
	// models is the file in which patch.sh looks for the names of the generated fields.
	models = "api/v1/models/address_pair.go"
)

// A patch must apply without fuzz to each release that a module of the tests has. "make agent-test"
// compiles it and runs its tests.
func TestPatchApplies(t *testing.T) {
	for _, c := range []struct {
		name, module, line string
		// renamed changes the models to the models of later releases of the line.
		renamed bool
	}{
		{"the older agent of make agent-test", "../../programs/cilium-older", "v1.19", false},
		{"the same with the models of later releases", "../../programs/cilium-older", "v1.19", true},
		{"the agent of make agent-test", "../../programs/cilium", "v1.20", false},
		{"the chart", ".", "v1.20", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			source := touchedFiles(t, ciliumDir(t, c.module), patches+c.line+".patch")
			field := "IPV4"
			if text := read(t, filepath.Join(source, models)); c.renamed || !strings.Contains(text, "IPV4 string") {
				field = "IPv4"
				check.Must(t, os.WriteFile(filepath.Join(source, models), []byte(strings.ReplaceAll(text, "IPV4", field)), 0o644))
			}
			patched := filepath.Join(t.TempDir(), "patched")
			if out, err := exec.Command(patches+"patch.sh", source, patched).CombinedOutput(); err != nil || len(out) > 0 {
				t.Fatalf("%v: %s", err, out)
			}
			if want := "= pair." + field + "\n"; !strings.Contains(read(t, filepath.Join(patched, "pkg/ipam/delegated.go")), want) {
				t.Errorf("the allocator does not read %s", want)
			}
		})
	}
}

// One series is written by hand, and the other one generated from it.
func TestPatchLines(t *testing.T) {
	t.Parallel()
	source := touchedFiles(t, ciliumDir(t, "../../programs/cilium-older"), patches+"v1.20.patch")
	generated, err := exec.Command(patches+"generate.sh", source).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%v: %s", err, failed.Stderr)
	}
	check.Must(t, err)
	if string(generated) != read(t, patches+"v1.19.patch") {
		t.Error("v1.19.patch is not generated from v1.20.patch: run generate.sh (deploy/cilium/agent/README.md)")
	}
}

func TestNoPatchForRelease(t *testing.T) {
	source := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(source, "VERSION"), []byte("1.18.6"), 0o644))
	out, err := exec.Command(patches+"patch.sh", source, filepath.Join(t.TempDir(), "patched")).CombinedOutput()
	if want := "no patch for Cilium v1.18.6; there are: v1.19.patch v1.20.patch\n"; err == nil || string(out) != want {
		t.Errorf("got %v, %q; want an error and %q", err, out, want)
	}
}

// ciliumDir returns the directory of Cilium's sources in the version that a module requires.
func ciliumDir(t *testing.T, module string) string {
	t.Helper()
	command := exec.Command("go", "mod", "download", "-json", "github.com/cilium/cilium")
	command.Dir = module
	out, err := command.Output()
	check.Must(t, err)
	var downloaded struct{ Dir string }
	check.Must(t, json.Unmarshal(out, &downloaded))
	return downloaded.Dir
}

// changedFile matches the line of a patch with the path of a file that it changes or adds.
var changedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(.*)$`)

// touchedFiles copies the files that patches and patch.sh read, which is faster than copying all.
func touchedFiles(t *testing.T, source string, series ...string) string {
	t.Helper()
	files := []string{"VERSION", models}
	for _, patch := range series {
		for _, m := range changedFile.FindAllStringSubmatch(read(t, patch), -1) {
			files = append(files, m[1])
		}
	}
	dir := t.TempDir()
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(source, f))
		if os.IsNotExist(err) && strings.Contains(f, "/delegated") {
			continue // the patch adds it
		}
		check.Must(t, err)
		check.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755))
		check.Must(t, os.WriteFile(filepath.Join(dir, f), text, 0o644))
	}
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	check.Must(t, err)
	return string(text)
}
