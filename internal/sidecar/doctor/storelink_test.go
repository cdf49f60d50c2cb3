package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// outside creates a directory with a stale file of an address, outside of the data directory.
func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "10.15.0.3"), nil, 0o600))
	return dir
}

// entries returns the names in a directory.
func entries(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestRepairLinkedNetwork(t *testing.T) {
	for name, target := range map[string]func(n node) string{
		"outside": func(node) string { return outside(t) },
		"in the data directory": func(n node) string {
			n.put("10.15.0.3", "")
			must(t, os.Rename(n.store, n.store+"-other"))
			return "pods-other"
		},
		"its own parent's sibling":  func(n node) string { dir := outside(t); must(t, os.Rename(dir, n.data+"-2")); return "../data-2" },
		"a link to another outside": func(n node) string { must(t, os.Symlink(outside(t), n.data+"-link")); return n.data + "-link" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			must(t, os.Mkdir(n.data, 0o755))
			must(t, os.Symlink(target(n), n.store))
			got := n.collect(t.Context(), true)
			if got.err == nil || !strings.Contains(got.err.Error(), n.store) || !strings.Contains(got.err.Error(), "symbolic link") {
				t.Errorf("got error %v; want one that names the link", got.err)
			}
			if left := entries(t, n.store); len(got.removed) > 0 || left != "10.15.0.3" {
				t.Errorf("removed %v, and the target of the link has %q; want it untouched", got.removed, left)
			}
		})
	}
}

func TestReadLinkedNetwork(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.data, 0o755))
	must(t, os.Symlink(outside(t), n.store))
	wantStore(t, n.collect(t.Context(), false), nil, ips("10.15.0.3"), nil)
}

func TestRepairLinkedDataDir(t *testing.T) {
	n := newNode(t)
	n.put("10.15.0.3", "")
	must(t, os.Rename(n.data, n.data+"-real"))
	must(t, os.Symlink("data-real", n.data)) // the path of the administrator
	wantStore(t, n.collect(t.Context(), true), nil, nil, ips("10.15.0.3"))
}

func TestRepairLinkedLock(t *testing.T) {
	for name, target := range map[string]func(n node) string{
		"file outside":       func(node) string { return filepath.Join(outside(t), "10.15.0.3") },
		"missing outside":    func(node) string { return filepath.Join(outside(t), "10.15.0.9") },
		"missing, inside":    func(node) string { return "10.15.0.9" },
		"lease file, inside": func(node) string { return "10.15.0.3" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.put("10.15.0.3", "")
			to := target(n)
			must(t, os.Symlink(to, filepath.Join(n.store, "lock")))
			for _, repair := range []bool{true, false} {
				got := n.collect(t.Context(), repair)
				if got.err == nil || !strings.Contains(got.err.Error(), filepath.Join(n.store, "lock")) {
					t.Errorf("repair %t: got error %v; want one that names the lock", repair, got.err)
				}
			}
			if left := entries(t, n.store); left != "10.15.0.3 lock" {
				t.Errorf("the store has %q; want it untouched", left)
			}
			if filepath.IsAbs(to) && entries(t, filepath.Dir(to)) != "10.15.0.3" {
				t.Errorf("the directory outside has %q; want it untouched", entries(t, filepath.Dir(to)))
			}
		})
	}
}

func TestRepairLinkedLease(t *testing.T) {
	n := newNode(t)
	n.put()
	dir := outside(t)
	must(t, os.Symlink(filepath.Join(dir, "10.15.0.3"), filepath.Join(n.store, "10.15.0.3")))
	got := n.collect(t.Context(), true)
	wantStore(t, got, nil, nil, nil)
	if len(got.unexpected) != 1 || !n.has("10.15.0.3") || entries(t, dir) != "10.15.0.3" {
		t.Errorf("unexpected are %v, the directory outside has %q; want link and target untouched", got.unexpected, entries(t, dir))
	}
}

func TestNetworkIsPipe(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.data, 0o755))
	must(t, unix.Mkfifo(n.store, 0o600))
	for _, repair := range []bool{true, false} {
		if err := n.collect(t.Context(), repair).err; err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("repair %t: got %v; want an error that names the directory", repair, err)
		}
	}
}
