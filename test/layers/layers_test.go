// Package layers checks that imports point down: a package may use what lies
// below it, never what lies beside or above (README.md, Layout).
package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/delegated-ipam/delegated-ipam/"

// below are the hand-written packages from top to bottom, each with those of
// this module that it may import.
var below = map[string][]string{
	"cmd/delegated-ipam":        {"pkg/cli", "pkg/command"},
	"pkg/cli":                   {"pkg/cli/output", "pkg/command", "pkg/logging", "pkg/options", "pkg/defaults", "pkg/client", "pkg/doctor", "pkg/app", "pkg/unixsock", "pkg/containerid", "pkg/ownermatch", "api/models"},
	"pkg/cli/output":            {"pkg/logging", "api/models"},
	"pkg/app":                   {"pkg/restapi", "pkg/unixsock", "pkg/attachment", "pkg/cniconf", "pkg/delegate", "pkg/delegate/call", "pkg/delegate/profile", "pkg/journal", "pkg/journal/record", "pkg/metrics", "pkg/metrics/endpoint", "pkg/options", "pkg/logging", "pkg/ownermatch"},
	"pkg/metrics":               {"pkg/attachment", "pkg/delegate", "pkg/delegate/call", "pkg/journal/record", "pkg/metrics/endpoint"},
	"pkg/metrics/endpoint":      nil,
	"pkg/restapi":               {"pkg/defaults", "pkg/response", "pkg/attachment", "pkg/delegate/call", "pkg/delegate/profile", "pkg/journal/record", "pkg/failpoint", "api/models", "server", "server/operations", "server/operations/daemon", "server/operations/ipam"},
	"pkg/attachment":            {"pkg/defaults", "pkg/delegate/call", "pkg/delegate/profile", "pkg/containerid", "pkg/journal/record", "pkg/ownermatch"},
	"pkg/doctor":                {"pkg/app", "pkg/unixsock", "pkg/cniconf", "pkg/delegate", "pkg/delegate/call", "pkg/delegate/hostlocal", "pkg/delegate/profile", "pkg/containerid", "pkg/journal", "api/models"},
	"cmd/delegated-ipam-bridge": {"pkg/bridge/cli", "pkg/command"},
	"pkg/bridge/cli":            {"pkg/bridge", "pkg/command", "pkg/logging", "pkg/options"},
	"pkg/bridge":                {"pkg/bridge/planner", "pkg/options", "pkg/metrics/endpoint", "pkg/client"},
	"pkg/bridge/planner":        nil,
	"pkg/client":                {"pkg/defaults"},
	"pkg/command":               {"pkg/options", "pkg/logging"},
	"pkg/options":               {"pkg/defaults", "pkg/ownermatch"},
	"pkg/unixsock":              {"pkg/logging"},
	"pkg/response":              nil,
	"pkg/logging":               nil,
	"pkg/defaults":              nil,
	"pkg/cniconf":               {"pkg/defaults"},
	"pkg/journal":               {"pkg/journal/record", "pkg/failpoint"},
	"pkg/delegate":              {"pkg/delegate/call", "pkg/delegate/hostlocal", "pkg/delegate/process", "pkg/delegate/profile"},
	"pkg/delegate/process":      {"pkg/failpoint"},
	"pkg/journal/record":        {"pkg/delegate/call"},
	"pkg/delegate/call":         {"pkg/delegate/profile"},
	"pkg/delegate/hostlocal":    nil,
	"pkg/delegate/profile":      nil,
	"pkg/ownermatch":            nil,
	"pkg/containerid":           nil,
	"pkg/failpoint":             nil,
}

// worldly are what the engine and the pure packages must not know.
var worldly = []string{"net", "net/http", "os", "os/exec", "os/signal", "path/filepath", "syscall", "golang.org/x/sys/unix"}

var pure = []string{"pkg/bridge/planner", "pkg/attachment", "pkg/journal/record", "pkg/delegate/call", "pkg/delegate/profile", "pkg/containerid"}

func TestImportsPointDown(t *testing.T) {
	seen := map[string]bool{}
	for dir, imports := range importsByFolder(t) {
		seen[dir] = true
		allowed, known := below[dir]
		if !known {
			t.Errorf("package %s has no place in the plan of the house; add it to the table where it belongs", dir)
		}
		for _, path := range imports {
			if own, ok := strings.CutPrefix(path, module); ok && !slices.Contains(allowed, own) {
				t.Errorf("%s imports %s; it may only import %v", dir, own, allowed)
			}
		}
	}
	for dir := range below {
		if !seen[dir] {
			t.Errorf("package %s is in the table but not in the tree", dir)
		}
	}
}

func TestTheEngineKnowsNeitherHTTPNorProcessesNorFiles(t *testing.T) {
	all := importsByFolder(t)
	for _, dir := range pure {
		for _, path := range all[dir] {
			if slices.Contains(worldly, path) {
				t.Errorf("%s imports %s", dir, path)
			}
		}
	}
}

// importsByFolder reads the imports of the hand-written code, tests left out.
func importsByFolder(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, top := range []string{"cmd", "pkg"} {
		err := fs.WalkDir(os.DirFS(root), top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			dir := filepath.Dir(path)
			if found[dir] == nil {
				found[dir] = []string{} // a package without imports, too
			}
			for _, i := range file.Imports {
				found[dir] = append(found[dir], strings.Trim(i.Path.Value, `"`))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
