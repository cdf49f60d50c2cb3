package layers

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// readers are the functions that read each fact of a profile. If two functions read a fact, a
// decision is made twice.
var readers = map[string]string{
	"Type":               "", // the name of the profile
	"RepeatedAdd":        "profile.SecondAdd",
	"VerifyBy":           "call.VerifyBy",
	"CheckProves":        "attachment.mayHaveLostWrites",
	"Lost":               "profile.IsLost",
	"KeyedBy":            "profile.Key",
	"Depends":            "profile.DependsOnPod",
	"DelNotHeld":         "profile.IsNotHeld",
	"AddOutlivesSeconds": "profile.ActsUntil",
	"Del":                "profile.SingleUseIDs",
	"Store":              "profile.OnNode",
	"DelFromAnyNode":     "profile.CheckReclaim",
	"PerNodeKey":         "profile.CheckReclaim",
	"Lookup":             "profile.LikeHostLocal",
	"Requests":           "call.Convention",
	"RequestForm":        "plugin.formatIP",
	"PodIdentity":        "profile.Pod",
	"Namespace":          "plugin.namespace",
	"StateDirKey":        "profile.StateDir",
	"DefaultStateDir":    "profile.StateDir",
	"Unique":             "attachment.reserve",
	"NetworkName":        "profile.CheckNetworkName",
	"NetworkNameUnless":  "profile.CheckNetworkName",
	"StatusProves":       "profile.HasStatus",
	"DelGivesUpSeconds":  "profile.CheckTimeout",
	"ReleaseFromAddress": "doctor.releasesFromAddress",
	"Requires":           "profile.Required",
	"Dangers":            "profile.Danger",
	"TryUnsafe":          "cli.profileTry",
	"Sources":            "", // documentation
}

func TestFactReaders(t *testing.T) {
	found := map[string][]string{}
	for _, p := range loadPackages(t) {
		for field, function := range p.factsRead(t) {
			found[field] = append(found[field], function...)
		}
	}
	for field := range reflect.TypeFor[profile.Profile]().Fields() {
		want, ok := readers[field.Name]
		if !ok {
			t.Errorf("the fact %s has no reader in the table", field.Name)
		}
		if got := found[field.Name]; want != "" && !slices.Equal(got, []string{want}) {
			t.Errorf("the fact %s is read by %v; want it read by %s alone", field.Name, got, want)
		}
	}
}

// A reader can also be in the value of a variable.
func TestFactReadAtPackageLevel(t *testing.T) {
	s := source{Dir: t.TempDir(), ImportPath: "hidden", Name: "hidden", GoFiles: []string{"hidden.go"}, exports: loadPackages(t)[0].exports}
	code := `package hidden

import "` + module + `internal/plugin/profile"

var hidden = func(p profile.Profile) bool { return p.Unique }

func open(p *profile.Profile) bool { return p.Unique }
`
	check.Must(t, os.WriteFile(filepath.Join(s.Dir, "hidden.go"), []byte(code), 0o600))
	if got, want := s.factsRead(t)["Unique"], []string{"hidden.package level", "hidden.open"}; !slices.Equal(got, want) {
		t.Errorf("found %q; want %q", got, want)
	}
}

// source is a package of the product, as "go list -export" describes it.
type source struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string
	Standard                      bool
	exports                       map[string]string
}

// product matches the import paths of our own packages that programs have.
var product = regexp.MustCompile("^" + module + "(cmd|internal|pkg)/")

// loadPackages lists the packages of the product.
func loadPackages(t *testing.T) []source {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Name,Export,GoFiles,Standard", "./internal/...", "./cmd/...", "./pkg/...")
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
	out, err := cmd.Output()
	check.Must(t, err)
	var own []source
	exports := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		s := source{exports: exports}
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			return own
		} else if err != nil {
			t.Fatal(err)
		}
		exports[s.ImportPath] = s.Export
		if product.MatchString(s.ImportPath) {
			own = append(own, s)
		}
	}
}

// decides reports whether a file of the product may decide by a profile. The code that parses, validates,
// proposes and prints profiles reads every field, and decides nothing by it.
func decides(name, file string) bool {
	switch name {
	case "profile":
		return file != "validate.go" && file != "load.go"
	case "profiletry":
		return false
	case "cli":
		return file != "profile.go"
	}
	return true
}

// factsRead returns, for each field of profile.Profile, the functions that read it, and "package
// level" for a reader outside of functions.
func (s source) factsRead(t *testing.T) map[string][]string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range s.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(s.Dir, name), nil, 0)
		check.Must(t, err)
		files = append(files, f)
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(s.exports[path])
	})}
	if _, err := conf.Check(s.ImportPath, fset, files, info); err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for i, f := range files {
		if !decides(s.Name, s.GoFiles[i]) {
			continue
		}
		for _, d := range f.Decls {
			place := s.Name + "." + placeOf(d)
			ast.Inspect(d, func(n ast.Node) bool {
				if field, ok := factOf(info, n); ok && !slices.Contains(found[field], place) {
					found[field] = append(found[field], place)
				}
				return true
			})
		}
	}
	return found
}

// placeOf returns the name of a function, or "package level" for another declaration.
func placeOf(d ast.Decl) string {
	if function, ok := d.(*ast.FuncDecl); ok {
		return function.Name.Name
	}
	return "package level"
}

// factOf returns the field of profile.Profile that a node selects.
func factOf(info *types.Info, n ast.Node) (string, bool) {
	x, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	selected, ok := info.Selections[x]
	if !ok || selected.Kind() != types.FieldVal {
		return "", false
	}
	recv := selected.Recv()
	if p, ok := recv.(*types.Pointer); ok {
		recv = p.Elem()
	}
	return x.Sel.Name, recv.String() == module+"internal/plugin/profile.Profile"
}
