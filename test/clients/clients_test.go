// Package clients runs the Go clients of several releases of Cilium against the real daemon. Plain
// "go test" skips it; "make client-test" runs it.
package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/versions"
)

func TestMain(m *testing.M) { harness.Main(m) }

// releases are the releases of Cilium whose clients are tested.
var releases = []string{"v1.15.0", "v1.16.0", "v1.17.0", "v1.18.0", "v1.19.0", versions.Of("cilium")}

// TestCiliumClients builds the programs in the directory CLIENT_TEST_DIR.
func TestCiliumClients(t *testing.T) {
	dir := os.Getenv("CLIENT_TEST_DIR")
	if dir == "" {
		t.Skip("the clients take minutes to build, from modules of the network; run 'make client-test'")
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			program := build(t, filepath.Join(dir, release), release)
			n := harness.NewNode(t)
			n.WriteNetwork(t, "05-cilium", harness.DualStack())
			n.Start(t)
			n.ResetHistory() // the client's requests are not recorded
			if out, err := exec.CommandContext(t.Context(), program, n.Socket).CombinedOutput(); err != nil {
				t.Fatalf("%v; the client printed %s", err, out)
			}
			if left := n.Leases(t); len(left) != 0 {
				t.Errorf("after the client released its addresses the plugin holds %v", left)
			}
		})
	}
}

// moduleLine is the line of a go.mod with the module's name.
var moduleLine = regexp.MustCompile(`(?m)^module .*$`)

// build builds testdata/client.go with the client of a release, and the versions of modules and the
// replacements that its go.mod has.
func build(t *testing.T, dir, release string) (program string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/cilium/cilium@"+release).Output()
	if err != nil {
		t.Fatalf("download of %s: %v: %s", release, err, out)
	}
	var module struct{ Dir, GoMod string }
	check.Must(t, json.Unmarshal(out, &module))
	mod, err := os.ReadFile(module.GoMod)
	check.Must(t, err)
	sum, err := os.ReadFile(filepath.Join(module.Dir, "go.sum"))
	check.Must(t, err)
	code, err := os.ReadFile(filepath.Join("testdata", "client.go"))
	check.Must(t, err)
	mod = append(moduleLine.ReplaceAll(mod, []byte("module client")), "\nrequire github.com/cilium/cilium "+release+"\n"...)
	check.Must(t, os.MkdirAll(dir, 0o755))
	for name, content := range map[string][]byte{"go.mod": mod, "go.sum": sum, "main.go": code} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	program = filepath.Join(dir, "client")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", program, ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
	return program
}
