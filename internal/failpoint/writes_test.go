package failpoint_test

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// sequence is two changes in a function without a failpoint between them.
type sequence struct {
	function      string
	first, second event
}

// exceptions are those of a package that writes below the state directory.
type exceptions struct {
	// sequences that need no failpoint between, with the reason: a kill there leaves what a kill
	// before or after leaves.
	sequences map[sequence]string
	// memory are functions that write nothing below the state directory, with their calls, sorted.
	memory map[string][]string
}

// writers returns the packages that write below the state directory.
func writers() map[string]exceptions {
	return map[string]exceptions{
		"daemon/journal": {sequences: map[sequence]string{
			{"Load", "WriteFile", "Sync"}: "the record is still in the journal",
		}, memory: map[string][]string{
			"Backup": {"Remove", "Sync"}, // the directory that the operator names, in a command
		}},
		"boltfile": {sequences: map[sequence]string{
			{"Create", "WriteAt", "Sync"}: "the file has no name yet that another process reads",
		}, memory: map[string][]string{
			"newest":  {"Write"},   // a checksum
			"Reserve": {"WriteAt"}, // zeros after the end, in a commit, whose failpoints are in the journal
		}},
		"daemon/statedir":  {},
		"daemon/history":   {},
		"daemon/uninstall": {},
		"plugin/hostlocal": {sequences: map[sequence]string{
			{"Reserve", "OpenFile", "OpenFile"}:    "the second one is of an empty file, which stays empty",
			{"Reserve", "OpenFile", "WriteString"}: "without it an ADD begins with the first address of the range",
			{"Reserve", "WriteString", "Truncate"}: "the longer text is another address to begin with",
			{"end", "Sync", "Sync"}:                "the names are not durable",
		}, memory: map[string][]string{
			"openLock": {"OpenFile"},                                   // an empty file
			"watch":    {"Fstatfs", "InotifyAddWatch", "InotifyInit1"}, // changes no file
		}},
		"plugin/internal/process": {memory: map[string][]string{"memoryFile": {"WriteAt"}}}, // memfd_create(2)
	}
}

// otherWriters returns the functions of other packages that change a disk, with the calls that do,
// sorted. None of them is below the state directory.
func otherWriters() map[string]map[string][]string {
	return map[string]map[string][]string{
		// The socket and its directory.
		"daemon/unixsock": {
			"listen":       {"MkdirAll"},
			"bind":         {"Fchmod"},
			"setAccess":    {"Chmod"},
			"setGroup":     {"Fchownat"},
			"removeSocket": {"Remove"},
			// Reads the peer of a connection: getsockopt(2).
			"peerGroups": {"Syscall6"},
			// Looks whether a connection is closed: poll(2).
			"Left": {"Poll"},
		},
		// The store of host-local, in a repair.
		"daemon/doctor": {"removeStale": {"Sync"}},
		"files":         {"Replace": {"CreateTemp", "Remove", "Rename"}}, // of its callers
		// The runtime's directory of plugins, when the plugin is installed or removed.
		"cniplugin": {
			"install": {"Executable", "Rename"}, "writeFile": {"OpenFile"}, "removeFile": {"Remove"},
			// Its parent.
			"call": {"Getppid", "Getppid"},
		},
		// Most run in the process of delegated-ipam-cni, which has no failpoints; the tests of the package and
		// of delegated-ipam-cni begin with what a kill leaves. The daemon removes entries between spool.done
		// and spool.removed.
		"spool": {
			"Open": {"OpenRoot", "Openat2"}, "Create": {"Mkdir"},
		},
		// The rendered CNI configuration, on a tmpfs.
		"nodenetwork": {"remove": {"Remove"}, "removeTemporary": {"Remove"}, "apply": {"Replace"}},
		// The directory in which profile try and reclaim run plugins.
		// The file of leaks that doctor --report names.
		"delegated-ipam/cli": {"withPlugins": {"MkdirTemp", "MkdirTemp", "RemoveAll"}, "writeReport": {"OpenFile"}},
		// The files that --output, --from and --report name.
		"fleet/lostnodes": {"Write": {"Replace"}},
		// The file of visits.
		"failpoint": {"count": {"OpenFile"}},
		// Tests alone call it.
		"testing/check": {"Tmpfs": {"Mount", "Unmount"}, "WithoutPrivileges": {"Capset"}},
	}
}

//evidence:design/reliability Failpoints
func TestWritesAreBetweenFailpoints(t *testing.T) {
	for dir, w := range writers() {
		p := parse(t, filepath.Join("..", dir), true)
		for name, want := range w.memory {
			if got := p.take(name).changes()[name]; !slices.Equal(got, want) {
				t.Errorf("internal/%s: %s writes by %q; want %q, none of them below the state directory", dir, name, got, want)
			}
		}
		bad, used := p.unguarded(w.sequences)
		for _, name := range bad {
			t.Errorf("internal/%s: %s changes the disk without a failpoint before it, after it, or between two changes; add points to internal/failpoint and reach them there", dir, name)
		}
		for s := range w.sequences {
			if !used[s] {
				t.Errorf("internal/%s: there is no %v; take it out of the list", dir, s)
			}
		}
	}
}

func TestOtherPackagesWriteNothing(t *testing.T) {
	known, ours := otherWriters(), writers()
	for _, root := range []string{"..", "../../cmd"} {
		err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
			name, relErr := filepath.Rel(root, dir)
			if _, writes := ours[name]; err != nil || relErr != nil || !d.IsDir() || writes {
				return errors.Join(err, relErr)
			}
			got := parse(t, dir, false).changes()
			if !maps.EqualFunc(got, known[name], slices.Equal) {
				t.Errorf("%s: its functions change a disk by %v; want %v; if that is below the state directory the package belongs to the writers here, else to the otherWriters", dir, got, known[name])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
