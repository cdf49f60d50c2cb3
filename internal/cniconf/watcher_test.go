package cniconf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// list returns a .conflist whose network delegates IPAM.
func list(network string) string {
	return fmt.Sprintf(`{"name":%q,"cniVersion":"1.0.0","plugins":[{"type":"p","ipam":{"type":"host-local"}}]}`, network)
}

const noIPAM = `{"name":"plain","plugins":[{"type":"p"}]}`

func watcher(t *testing.T, o Options) *Watcher {
	t.Helper()
	w, err := New(o)
	check.Must(t, err)
	return w
}

// expect checks that a pool has a network and no error.
func expect(t *testing.T, w *Watcher, pool, network, file string) {
	t.Helper()
	n, err := w.Network(pool)
	if err != nil || n.Name != network || filepath.Base(n.File) != file {
		t.Errorf("pool %q has network %q of %s, %v; want %q of %s", pool, n.Name, n.File, err, network, file)
	}
	if s := w.Status(pool); s.Err != nil || s.Network != network || s.Since.IsZero() {
		t.Errorf("pool %q has status %+v", pool, s)
	}
}

// expectKept checks that a pool keeps a network in spite of an error.
func expectKept(t *testing.T, w *Watcher, pool, network, errText string) {
	t.Helper()
	if n, err := w.Network(pool); err != nil || n.Name != network {
		t.Errorf("pool %q has network %q, %v; want %q", pool, n.Name, err, network)
	}
	s := w.Status(pool)
	if s.Network != network || s.Err == nil || !strings.Contains(s.Err.Error(), errText) {
		t.Errorf("pool %q has status %+v; want an error with %q", pool, s, errText)
	}
}

// expectNone checks that a pool has no network, and an error with all of the texts.
func expectNone(t *testing.T, w *Watcher, pool string, texts ...string) {
	t.Helper()
	n, err := w.Network(pool)
	if err == nil {
		t.Fatalf("pool %q has network %q", pool, n.Name)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not have %q", err, text)
		}
	}
	if s := w.Status(pool); s.Err == nil || s.Err.Error() != err.Error() || s.Network != "" {
		t.Errorf("pool %q has status %+v", pool, s)
	}
}

func TestFirstFile(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "00-first.txt", list("ignored"))
	put(t, dir, "05-plain.conflist", noIPAM)
	put(t, dir, "06-broken.conf", `{`)
	put(t, dir, "10-b.json", `{"name":"b","type":"p","ipam":{"type":"i"}}`)
	put(t, dir, "20-a.conflist", list("a"))
	check.Must(t, os.Mkdir(filepath.Join(dir, "01-directory.conf"), 0o755))
	w := watcher(t, Options{Dir: dir})
	expect(t, w, "default", "b", "10-b.json")
	check.Must(t, os.Remove(filepath.Join(dir, "10-b.json")))
	w.reload()
	expect(t, w, "default", "a", "20-a.conflist")
}

func TestNamedNetwork(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-a.conflist", list("a"))
	put(t, dir, "20-b.conf", `{"name":"b","type":"p","ipam":{"type":"i"}}`)
	put(t, dir, "30-b.conflist", list("b"))
	put(t, dir, "40-plain.conflist", noIPAM)
	put(t, dir, "50-plain.conflist", list("plain"))
	w := watcher(t, Options{Dir: dir, Pools: map[string]string{"default": "b", "blue": "a", "plain": "plain", "red": "c"}})
	expect(t, w, "default", "b", "20-b.conf")
	expect(t, w, "blue", "a", "10-a.conflist")
	expectNone(t, w, "red", dir, `network "c"`, `10-a.conflist (defines network "a")`)
	expectNone(t, w, "plain", "40-plain.conflist", "no plugin of its chain sets ipam.type")
	expectNone(t, w, "green", `unknown pool "green"`, "default, blue, plain, red")
	if got, want := w.Pools(), []string{"default", "blue", "plain", "red"}; !slices.Equal(got, want) {
		t.Errorf("pools are %q; want %q", got, want)
	}
}

// The callers add the pool.
func TestErrorsStateFactsOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	w := watcher(t, Options{Dir: dir})
	_, err := w.Network("default")
	if want := "no CNI configuration in directory " + dir + ": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("a missing directory: got %v; want %s", err, want)
	}
	check.Must(t, os.Mkdir(dir, 0o755))
	put(t, dir, "10-a.conflist", list("a"))
	w.reload()
	put(t, dir, "10-a.conflist", "{")
	w.reload()
	want := `network "a" is kept as last read from ` + filepath.Join(dir, "10-a.conflist") + ": "
	if err := w.Status("default").Err; err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), dir) != 1 {
		t.Errorf("an invalid file: got %v; want %q, and %s once", err, want, dir)
	}
}

func TestSingleFile(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "00-a.conflist", list("a"))
	file := put(t, dir, "90-b.conflist", list("b"))
	expect(t, watcher(t, Options{Dir: dir, File: file}), "default", "b", "90-b.conflist")
	missing := filepath.Join(dir, "none.conflist")
	expectNone(t, watcher(t, Options{Dir: dir, File: missing}), "default", missing, "no such file")
	expectNone(t, watcher(t, Options{File: file, Pools: map[string]string{"default": "a"}}), "default", file, `defines network "b"`)
}

func TestNoneChosen(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	expectNone(t, watcher(t, Options{Dir: gone}), "default", gone, "no such file or directory")
	expectNone(t, watcher(t, Options{Dir: dir}), "default", dir, "found no such file", "expected a .conflist")
	for i := range maxListed + 3 {
		put(t, dir, fmt.Sprintf("%02d.conflist", i), noIPAM)
	}
	expectNone(t, watcher(t, Options{Dir: dir}), "default", "00.conflist (no plugin of its chain sets ipam.type)", "09.conflist", "and 3 more")
}

func TestInvalidOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no directory and no file was accepted")
	}
}

func TestKeepsLastValid(t *testing.T) {
	for name, c := range map[string]struct {
		// files are written, or removed if they are empty. No files: the directory is removed.
		files   map[string]string
		errText string
	}{
		"invalid file": {map[string]string{"10-a.conflist": `{"name":"a"`}, "unexpected end of JSON"},
		"invalid file and a valid later one": {
			map[string]string{"10-a.conflist": " ", "20-b.conflist": list("b")}, "10-a.conflist",
		},
		"file that no longer delegates": {map[string]string{"10-a.conflist": noIPAM}, "ipam.type"},
		"removed file":                  {map[string]string{"10-a.conflist": ""}, "found no such file"},
		"removed directory":             {nil, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "10-a.conflist", list("a"))
			w := watcher(t, Options{Dir: dir})
			for file, content := range c.files {
				if path := put(t, dir, file, content); content == "" {
					check.Must(t, os.Remove(path))
				}
			}
			if c.files == nil {
				check.Must(t, os.RemoveAll(dir))
			}
			w.reload()
			expectKept(t, w, "default", "a", c.errText)
			put(t, dir, "10-a.conflist", list("a"))
			w.reload()
			expect(t, w, "default", "a", "10-a.conflist")
		})
	}
}

// A file that is named alone is withdrawn by its removal; an invalid one is kept.
func TestFileWithdrawn(t *testing.T) {
	dir := t.TempDir()
	file := put(t, dir, "10-a.conflist", list("a"))
	w := watcher(t, Options{File: file})
	check.Must(t, w.Configured("default"))
	put(t, dir, "10-a.conflist", "{")
	w.reload()
	expectKept(t, w, "default", "a", "unexpected end")
	check.Must(t, os.Remove(file))
	w.reload()
	expectNone(t, w, "default", file, "no such file")
	check.Must(t, w.Configured("default")) // it was
	if err := watcher(t, Options{File: file}).Configured("default"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that was never read: %v; want an error with %s", err, file)
	}
	put(t, dir, "10-a.conflist", "{")
	w.reload()
	expectNone(t, w, "default", file, "unexpected end")
	put(t, dir, "10-a.conflist", list("b"))
	w.reload()
	expect(t, w, "default", "b", "10-a.conflist")
	check.Must(t, os.RemoveAll(dir))
	w.reload()
	expectNone(t, w, "default", file, "no such file")
}

func TestOnChange(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-a.conflist", list("a"))
	w := watcher(t, Options{Dir: dir})
	calls := 0
	w.OnChange(func() { calls++ })
	for _, step := range []struct {
		name, content string
		want          int
	}{
		{"the same bytes", list("a"), 0},
		{"other white space", strings.ReplaceAll(list("a"), ":", " :\n"), 0},
		{"another plugin object", strings.ReplaceAll(list("a"), "host-local", "static"), 1},
		{"broken", "{", 2},
		{"still broken", "{", 2},
		{"good again", strings.ReplaceAll(list("a"), "host-local", "static"), 3},
	} {
		put(t, dir, "10-a.conflist", step.content)
		before := w.Status("default").Since
		callsBefore := calls
		w.reload()
		if calls != step.want {
			t.Errorf("%s: %d calls, want %d", step.name, calls, step.want)
		}
		if since := w.Status("default").Since; since.Equal(before) != (calls == callsBefore) {
			t.Errorf("%s: since %s, before %s", step.name, since, before)
		}
	}
}

func TestNetworkIsCopied(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-a.conflist", list("a"))
	w := watcher(t, Options{Dir: dir})
	n, err := w.Network("default")
	check.Must(t, err)
	n.PluginConfig[0] = '!'
	if again, err := w.Network("default"); err != nil || again.PluginConfig[0] != '{' {
		t.Errorf("the network is now %s, %v", again.PluginConfig, err)
	}
}

func TestNetworkConflict(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-a.conflist", list("a"))
	w := watcher(t, Options{Dir: dir, Pools: map[string]string{"default": "", "blue": "a", "azure": ""}})
	expect(t, w, "default", "a", "10-a.conflist")
	expectNone(t, w, "azure", `of pool "default"`, `"a"`, "10-a.conflist")
	expectNone(t, w, "blue", `of pool "default"`, `"a"`, "10-a.conflist")

	// When the default pool gets another network, the next pool gets the first one.
	put(t, dir, "05-b.conflist", list("b"))
	w.reload()
	expect(t, w, "default", "b", "05-b.conflist")
	expectNone(t, w, "azure", `of pool "default"`, `"b"`)
	expect(t, w, "blue", "a", "10-a.conflist")

	// A kept network is in use, too.
	put(t, dir, "05-b.conflist", "{")
	w.reload()
	expectKept(t, w, "default", "b", "unexpected end")
	expect(t, w, "blue", "a", "10-a.conflist")
}

// The network of a primary CNI, behind which cilium-agent chains cilium-cni: the files come later than the
// daemon, from two writers, and are replaced. The pool never has another network.
func TestChainedFiles(t *testing.T) {
	dir := t.TempDir()
	w := watcher(t, Options{Dir: dir, Pools: map[string]string{"default": "pods"}})
	chain := func(ipam, next string) string {
		return fmt.Sprintf(`{"name":"pods","cniVersion":"1.0.0","plugins":[{"type":"bridge","ipam":{%s}}%s]}`, ipam, next)
	}
	const hostLocal, wider, cilium = `"type":"host-local"`, `"type":"host-local","x":2`, `,{"type":"cilium-cni"}`
	bak := func() error {
		return os.Rename(filepath.Join(dir, "10-primary.conflist"), filepath.Join(dir, "10-primary.conflist.cilium_bak"))
	}
	for _, step := range []struct {
		name, file, content string
		then                func() error
		// inUse is the file in use; empty if the pool has no network. config is the plugin's.
		inUse, config string
	}{
		{"another network", "87-other.conflist", list("other"), nil, "", ""},
		{"truncated", "10-primary.conflist", "", nil, "", ""},
		{"written", "10-primary.conflist", chain(hostLocal, ""), nil, "10-primary.conflist", hostLocal},
		{"chained by the agent", "05-cilium.conflist", chain(hostLocal, cilium), bak, "05-cilium.conflist", hostLocal},
		{"upgrade, truncated", "10-primary.conflist", "", nil, "05-cilium.conflist", hostLocal},
		{"upgrade, written", "10-primary.conflist", chain(wider, ""), nil, "05-cilium.conflist", hostLocal},
		{"chained again", "05-cilium.conflist", chain(wider, cilium), bak, "05-cilium.conflist", wider},
	} {
		put(t, dir, step.file, step.content)
		if step.then != nil {
			check.Must(t, step.then())
		}
		w.reload()
		if step.inUse == "" {
			expectNone(t, w, "default", `network "pods"`)
			continue
		}
		expect(t, w, "default", "pods", step.inUse)
		if n, err := w.Network("default"); err != nil || string(n.PluginConfig) != `{"type":"bridge","ipam":{`+step.config+`}}` {
			t.Errorf("%s: the plugin is %s (%v)", step.name, n.PluginConfig, err)
		}
	}
	// Only the agent's backup is left: the network is kept.
	check.Must(t, os.Remove(filepath.Join(dir, "05-cilium.conflist")))
	w.reload()
	expectKept(t, w, "default", "pods", `found 87-other.conflist (defines network "other")`)
}
