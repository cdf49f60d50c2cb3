package killpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// writers are the packages that write below the state folder. In pkg/journal,
// which does it by many types, any method with the name of a change counts; else
// only functions of package os do.
var writers = map[string]bool{"journal": true, "delegate": true}

// strangers are the packages that write elsewhere, and where.
var strangers = map[string]string{"access": "the socket and the folder in which it is made"}

func TestEveryWriteToTheStateFolderIsBetweenKillPoints(t *testing.T) {
	for dir := range writers {
		p := parse(t, filepath.Join("..", dir), dir == "journal")
		for _, name := range p.unguarded() {
			t.Errorf("pkg/%s: %s changes the disk without a kill point before and after it; add points to pkg/killpoint and reach them there", dir, name)
		}
	}
}

func TestNoOtherPackageWritesFiles(t *testing.T) {
	err := filepath.WalkDir("..", func(dir string, d fs.DirEntry, err error) error {
		name, relErr := filepath.Rel("..", dir)
		if err != nil || relErr != nil || !d.IsDir() || writers[name] || strangers[name] != "" || name == "killpoint" {
			return errors.Join(err, relErr)
		}
		p := parse(t, dir, false)
		for _, f := range p.functions {
			for _, c := range p.changes(f) {
				t.Errorf("pkg/%s: %s calls %s; if that is below the state folder the package belongs to the writers here, else to the strangers", name, f.Name.Name, c.name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAWriteWithoutKillPointsIsFound(t *testing.T) {
	tests := map[string]struct {
		source string
		want   []string
	}{
		"a write between points":              {source: `func A() { killpoint.Reach(x); r.Remove(n); killpoint.Reach(y) }`},
		"a write that nothing follows":        {source: `func A() { killpoint.Reach(x); r.Remove(n) }`, want: []string{"A"}},
		"a write before the first point":      {source: `func A() { r.Remove(n); killpoint.Reach(y) }`, want: []string{"A"}},
		"a second write after the last point": {source: `func A() { killpoint.Reach(x); r.Remove(n); killpoint.Reach(y); r.Rename(a, b) }`, want: []string{"A"}},
		"a write in a helper between points":  {source: `func A() { killpoint.Reach(x); b(); killpoint.Reach(y) }; func b() { d.Sync() }`},
		"a write in a helper alone":           {source: `func A() { b() }; func b() { c() }; func c() { d.Sync() }`, want: []string{"A"}},
		"a helper that nobody calls":          {source: `func b() { d.Sync() }`, want: []string{"b"}},
		"a write that a guarded helper does":  {source: `func A() { b(func() error { return os.Mkdir(d, m) }) }; func b(f func() error) { killpoint.Reach(x); f(); killpoint.Reach(y) }`},
		"a write that a bare helper does":     {source: `func A() { b(func() error { return os.Mkdir(d, m) }) }; func b(f func() error) { f() }`, want: []string{"A"}},
		"a file that is only read":            {source: `func A() { r.OpenFile(n, os.O_RDONLY|syscall.O_NOFOLLOW, 0) }`},
		"a file that is opened for writing":   {source: `func A() { r.OpenFile(n, os.O_RDWR, 0) }`, want: []string{"A"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x.go")
			if err := os.WriteFile(file, []byte("package x\n"+tt.source), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := parse(t, filepath.Dir(file), true).unguarded(); !slices.Equal(got, tt.want) {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}
