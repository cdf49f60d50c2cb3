package failpoint_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// imported is the head of a test file.
const imported = `package x
import (
	"fmt"
	"io"
	"os"
	"syscall"
	links "os"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
)
`

func parseText(t *testing.T, text string, methods bool) *source {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.go")
	if err := os.WriteFile(file, []byte(imported+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return parse(t, filepath.Dir(file), methods)
}

func TestUnguarded(t *testing.T) {
	const begin, end = `func A() { failpoint.Reach(x); `, `; failpoint.Reach(y) }`
	a := []string{"A"}
	tests := map[string]struct {
		source string
		want   []string
	}{
		"a write between points":              {source: begin + `r.Remove(n)` + end},
		"a write that nothing follows":        {source: `func A() { failpoint.Reach(x); r.Remove(n) }`, want: a},
		"a write before the first point":      {source: `func A() { r.Remove(n); failpoint.Reach(y) }`, want: a},
		"a second write after the last point": {source: `func A() { failpoint.Reach(x); r.Remove(n); failpoint.Reach(y); r.Rename(a, b) }`, want: a},
		"a write that is deferred":            {source: `func A() { failpoint.Reach(x); defer r.Remove(n); failpoint.Reach(y) }`, want: a},

		"two writes with a point between":         {source: begin + `r.Remove(n); failpoint.Reach(z); r.Remove(m)` + end},
		"two writes between the points of one":    {source: begin + `j.attachments.Remove(n); j.attachments.Remove(m)` + end, want: a},
		"a write and one in a helper":             {source: begin + `r.Remove(n); b()` + end + `; func b() { d.Sync() }`, want: a},
		"two writes in a helper between points":   {source: begin + `b()` + end + `; func b() { d.Sync(); d.Sync() }`, want: a},
		"a write in a loop between points":        {source: begin + `for range l { r.Remove(n) }` + end, want: a},
		"a write in the condition of a loop":      {source: begin + `for r.Remove(n) == nil {}` + end, want: a},
		"a write and a point in a loop":           {source: begin + `for range l { r.Remove(n); failpoint.Reach(z) }` + end},
		"a known sequence":                        {source: begin + `f.Write(d); f.Sync()` + end},
		"a known sequence the other way round":    {source: begin + `f.Sync(); f.Write(d)` + end, want: a},
		"a known sequence with a third write":     {source: begin + `f.Write(d); f.Sync(); f.Sync()` + end, want: a},
		"two writes in what a guarded one is for": {source: `func A() { b(func() { os.Mkdir(d, m); os.Mkdir(e, m) }) }; func b(f func()) { failpoint.Reach(x); f(); failpoint.Reach(y) }`, want: a},

		"a write in a helper between points":       {source: begin + `b()` + end + `; func b() { d.Sync() }`},
		"a write in a helper alone":                {source: `func A() { b() }; func b() { c() }; func c() { d.Sync() }`, want: a},
		"a helper that nobody calls":               {source: `func b() { d.Sync() }`, want: []string{"b"}},
		"a write that a guarded helper does":       {source: `func A() { b(func() error { return os.Mkdir(d, m) }) }; func b(f func() error) { failpoint.Reach(x); f(); failpoint.Reach(y) }`},
		"a write that a bare helper does":          {source: `func A() { b(func() error { return os.Mkdir(d, m) }) }; func b(f func() error) { f() }`, want: a},
		"a write that a helper does too late":      {source: `func A() { b(func() error { return os.Mkdir(d, m) }) }; func b(f func() error) { failpoint.Reach(x); failpoint.Reach(y); f() }`, want: []string{"b"}},
		"a write that a helper does twice":         {source: `func A() { b(func() error { return os.Mkdir(d, m) }) }; func b(f func() error) { failpoint.Reach(x); f(); f(); failpoint.Reach(y) }`, want: []string{"b"}},
		"a write in one of two helpers of a name":  {source: `func A() { x.b() }; func (X) b() { failpoint.Reach(x); d.Sync(); failpoint.Reach(y) }; func (Y) b() { d.Sync() }`, want: a},
		"a file that is only read":                 {source: `func A() { r.OpenFile(n, os.O_RDONLY|syscall.O_NOFOLLOW, 0) }`},
		"a file that is opened for writing":        {source: `func A() { r.OpenFile(n, os.O_RDWR, 0) }`, want: a},
		"a file that is made and only read":        {source: `func A() { r.OpenFile(n, os.O_RDONLY|os.O_CREATE, 0) }`, want: a},
		"what only asks":                           {source: `func A() { os.Stat(n); unix.Getpid(); fmt.Sprint(n); io.ReadAll(f) }`},
		"unix.Renameat":                            {source: `func A() { unix.Renameat(a, b, c, d) }`, want: a},
		"unix.Ftruncate":                           {source: `func A() { unix.Ftruncate(int(f.Fd()), 0) }`, want: a},
		"unix.Fsync":                               {source: `func A() { unix.Fsync(int(f.Fd())) }`, want: a},
		"a call of the kernel by number":           {source: `func A() { unix.Syscall(unix.SYS_UNLINK, a, b, c) }`, want: a},
		"syscall.Unlink":                           {source: `func A() { syscall.Unlink(n) }`, want: a},
		"renameio.WriteFile":                       {source: `func A() { renameio.WriteFile(n, d, m) }`, want: a},
		"fmt.Fprintln":                             {source: `func A() { fmt.Fprintln(f) }`, want: a},
		"io.Copy":                                  {source: `func A() { io.Copy(f, r) }`, want: a},
		"the method WriteString":                   {source: `func A() { f.WriteString(s) }`, want: a},
		"the method Truncate":                      {source: `func A() { f.Truncate(0) }`, want: a},
		"the method Sync":                          {source: `func A() { f.Sync() }`, want: a},
		"a package that is imported under a name":  {source: `func A() { links.Symlink(a, b) }`, want: a},
		"a point of something that has its name":   {source: `func A() { x.Reach(p); f.Sync(); x.Reach(p) }`, want: a},
		"a write in a function that is called now": {source: begin + `func() { f.Sync(); f.Sync() }()` + end, want: a},
	}
	known := map[sequence]string{{"A", "Write", "Sync"}: "for this test"}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, _ := parseText(t, tt.source, true).unguarded(known); !slices.Equal(got, tt.want) {
				t.Errorf("got %q; want %q", got, tt.want)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	for call, want := range map[string]string{
		`os.WriteFile(stateDir+"/x", d, m)`:    "WriteFile",
		`os.OpenFile(n, os.O_RDWR, 0)`:         "OpenFile",
		`os.OpenRoot(stateDir)`:                "OpenRoot",
		`unix.Unlink(n)`:                       "Unlink",
		`syscall.Unlink(n)`:                    "Unlink",
		`renameio.WriteFile(n, d, m)`:          "WriteFile",
		`links.Remove(n)`:                      "Remove",
		`os.OpenFile(n, os.O_RDONLY, 0)`:       "",
		`os.Open(n)`:                           "",
		`fmt.Fprintln(w, "to a terminal")`:     "",
		`io.WriteString(w, "to a connection")`: "",
	} {
		t.Run(call, func(t *testing.T) {
			expected := map[string][]string{}
			if want != "" {
				expected["a"] = []string{want}
			}
			if got := parseText(t, "func a() { "+call+" }", false).changes(); !maps.EqualFunc(got, expected, slices.Equal) {
				t.Errorf("got %v; want %v", got, expected)
			}
		})
	}
}
