package cniconf

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

func quiet() logrus.FieldLogger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// list is a .conflist of a network that delegates.
func list(network string) string {
	return fmt.Sprintf(`{"name":%q,"cniVersion":"1.0.0","plugins":[{"type":"p","ipam":{"type":"host-local"}}]}`, network)
}

const noIPAM = `{"name":"plain","plugins":[{"type":"p"}]}`

func watcher(t *testing.T, o Options) *Watcher {
	t.Helper()
	o.Log = quiet()
	w, err := New(o)
	must(t, err)
	return w
}

// expect wants a network for a pool, and no trouble.
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

// expectKept wants a network for a pool that is kept in spite of trouble.
func expectKept(t *testing.T, w *Watcher, pool, network, trouble string) {
	t.Helper()
	if n, err := w.Network(pool); err != nil || n.Name != network {
		t.Errorf("pool %q has network %q, %v; want %q", pool, n.Name, err, network)
	}
	s := w.Status(pool)
	if s.Network != network || s.Err == nil || !strings.Contains(s.Err.Error(), trouble) {
		t.Errorf("pool %q has status %+v; want trouble …%s…", pool, s, trouble)
	}
}

// expectNone wants an error for a pool that has all of the texts.
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

func TestTheFirstFileInNameOrderWhoseChainDelegatesIsUsed(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "00-first.txt", list("ignored"))
	put(t, dir, "05-plain.conflist", noIPAM)
	put(t, dir, "06-broken.conf", `{`)
	put(t, dir, "10-b.json", `{"name":"b","type":"p","ipam":{"type":"i"}}`)
	put(t, dir, "20-a.conflist", list("a"))
	must(t, os.Mkdir(filepath.Join(dir, "01-folder.conf"), 0o755))
	expect(t, watcher(t, Options{Dir: dir}), "", "b", "10-b.json")
}

func TestANetworkIsFoundByItsNameInTheFirstFileThatHasIt(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-a.conflist", list("a"))
	put(t, dir, "20-b.conf", `{"name":"b","type":"p","ipam":{"type":"i"}}`)
	put(t, dir, "30-b.conflist", list("b"))
	w := watcher(t, Options{Dir: dir, Pools: map[string]string{"default": "b", "blue": "a", "red": "c"}})
	expect(t, w, "default", "b", "20-b.conf")
	expect(t, w, "blue", "a", "10-a.conflist")
	expectNone(t, w, "red", dir, `network "c"`, `10-a.conflist (is of network "a")`)
	expectNone(t, w, "green", `"green" is not known`, "default, blue, red")
}

func TestTheFirstFileOfANetworkMustDelegate(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-plain.conflist", noIPAM)
	put(t, dir, "20-plain.conflist", list("plain"))
	w := watcher(t, Options{Dir: dir, Pools: map[string]string{"default": "plain"}})
	expectNone(t, w, "default", "10-plain.conflist", "no plugin of its chain sets ipam.type")
}

func TestOneGivenFileIsTheOnlyOneLookedAt(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "00-a.conflist", list("a"))
	file := put(t, dir, "90-b.conflist", list("b"))
	expect(t, watcher(t, Options{Dir: dir, File: file}), "default", "b", "90-b.conflist")
	missing := filepath.Join(dir, "none.conflist")
	expectNone(t, watcher(t, Options{Dir: dir, File: missing}), "default", missing, "no such file")
	expectNone(t, watcher(t, Options{File: file, Pools: map[string]string{"default": "a"}}), "default", file, `is of network "b"`)
}

func TestTheErrorSaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	expectNone(t, watcher(t, Options{Dir: gone}), "", gone, "no such file or directory")
	expectNone(t, watcher(t, Options{Dir: dir}), "", dir, "found no such file", "expected a .conflist")
	for i := range maxFound + 3 {
		put(t, dir, fmt.Sprintf("%02d.conflist", i), noIPAM)
	}
	expectNone(t, watcher(t, Options{Dir: dir}), "", "00.conflist (no plugin of its chain sets ipam.type)", "09.conflist", "and 3 more")
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	if _, err := New(Options{Log: quiet()}); err == nil {
		t.Error("no folder and no file was accepted")
	}
	if _, err := New(Options{Dir: t.TempDir()}); err == nil {
		t.Error("no log was accepted")
	}
}

func TestTheLastGoodNetworkIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(t *testing.T, dir string)
		trouble string
	}{
		"its file is broken": {
			func(t *testing.T, dir string) { put(t, dir, "10-a.conflist", `{"name":"a"`) },
			"unexpected end of JSON",
		},
		"its file is broken and a later one would do": {
			func(t *testing.T, dir string) {
				put(t, dir, "10-a.conflist", ``)
				put(t, dir, "20-b.conflist", list("b"))
			},
			"10-a.conflist",
		},
		"its file does not delegate any more": {
			func(t *testing.T, dir string) { put(t, dir, "10-a.conflist", noIPAM) },
			"ipam.type",
		},
		"its file is gone": {
			func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "10-a.conflist"))) },
			"found no such file",
		},
		"the folder is gone": {
			func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
			"no such file or directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "10-a.conflist", list("a"))
			w := watcher(t, Options{Dir: dir})
			c.change(t, dir)
			w.reload()
			expectKept(t, w, "", "a", c.trouble)
			put(t, dir, "10-a.conflist", list("a"))
			w.reload()
			expect(t, w, "", "a", "10-a.conflist")
		})
	}
}

func TestAnotherFileTakesThePlaceOfOneThatIsGone(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-a.conflist", list("a"))
	put(t, dir, "20-b.conflist", list("b"))
	w := watcher(t, Options{Dir: dir})
	expect(t, w, "", "a", "10-a.conflist")
	must(t, os.Remove(filepath.Join(dir, "10-a.conflist")))
	w.reload()
	expect(t, w, "", "b", "20-b.conflist")
}

func TestOnlyAChangeOfWhatIsToldCountsAsOne(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-a.conflist", list("a"))
	w := watcher(t, Options{Dir: dir})
	told := 0
	w.OnChange(func(pool string) {
		if pool != "default" {
			t.Errorf("told of pool %q", pool)
		}
		told++
	})
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
		before := w.Status("").Since
		already := told
		w.reload()
		if told != step.want {
			t.Errorf("%s: told %d times, want %d", step.name, told, step.want)
		}
		if since := w.Status("").Since; since.Equal(before) != (told == already) {
			t.Errorf("%s: since %s, before %s", step.name, since, before)
		}
	}
}

func TestACallerCannotChangeTheNetworkOfOthers(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-a.conflist", list("a"))
	w := watcher(t, Options{Dir: dir})
	n, err := w.Network("")
	must(t, err)
	n.PluginConfig[0] = '!'
	if again, err := w.Network(""); err != nil || again.PluginConfig[0] != '{' {
		t.Errorf("the network is now %s, %v", again.PluginConfig, err)
	}
}

func TestTwoPoolsNeverShareANetwork(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "10-a.conflist", list("a"))
	w := watcher(t, Options{Dir: dir, Pools: map[string]string{"default": "", "blue": "a", "azure": ""}})
	expect(t, w, "default", "a", "10-a.conflist")
	expectNone(t, w, "azure", `"default" and "azure"`, `"a"`, "10-a.conflist")
	expectNone(t, w, "blue", `"default" and "blue"`, `"a"`, "10-a.conflist")

	// The default pool moves on, and the network goes to the next in order.
	put(t, dir, "05-b.conflist", list("b"))
	w.reload()
	expect(t, w, "default", "b", "05-b.conflist")
	expectNone(t, w, "azure", `"default" and "azure"`, `"b"`)
	expect(t, w, "blue", "a", "10-a.conflist")

	// A network that is only kept is taken all the same.
	put(t, dir, "05-b.conflist", "{")
	w.reload()
	expectKept(t, w, "default", "b", "unexpected end")
	expect(t, w, "blue", "a", "10-a.conflist")
}
