package client_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// maxPackages limits the packages that a program compiles for the client. Nearly all of them are
// those of net/http.
const maxPackages = 200

func TestImports(t *testing.T) {
	list := func(format string) []string {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	const pkg = "github.com/delegated-ipam/delegated-ipam/pkg/"
	if got := list("{{if not .Standard}}{{.ImportPath}}{{end}}"); !slices.Equal(got, []string{pkg + "defaults", pkg + "client"}) {
		t.Errorf("depends on %v; want the standard library and the constants of package defaults only", got)
	}
	if all := list("{{.ImportPath}}"); len(all) > maxPackages {
		t.Errorf("depends on %d packages; want %d at most", len(all), maxPackages)
	}
}
