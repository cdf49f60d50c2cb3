package faults

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

// disk is what a power loss would leave: POSIX promises the content of a file
// after fsync of that file, and a new, changed or removed name after fsync of the
// folder that it is in (fsync(2)). It is fed with the steps of a trace.
//
// Changes that are not durable yet may be on disk anyway. So a file is written once: a
// record that is written again, when the power fails, is torn.
type disk struct {
	// now is what processes see, safe what a power loss leaves; by path.
	now, safe map[string]*inode
	// changed are the names of a folder that differ between the two, since when.
	changed map[string]map[string]int
	// made counts the files that were given a record's name, wrong says which writes and
	// new names broke the rules.
	made  int
	wrong []string
	// clock counts changes; begun is when the fsync of a thread began: what
	// changed after that it need not have written.
	clock int
	begun map[int]int
}

// inode is one file or folder.
type inode struct {
	// state is that of the record in it; empty for a folder, or without one.
	state string
	// written and synced are when it was last written and last made durable.
	written, synced int
	// failed tells that a write or an fsync of it has failed: nobody knows what is
	// on disk, and a second fsync would not say.
	failed bool
}

// none is the state of a record whose file is not there, torn that of one whose
// content a power loss may take.
const (
	none = "none"
	torn = "torn"
)

var (
	ofFile     = regexp.MustCompile(`^\d+<([^>]*)>`)
	stateOf    = regexp.MustCompile(`\\"state\\":\\"([a-z]+)\\"`)
	oneName    = regexp.MustCompile(`^(?:\w+<([^>]*)>, )?"([^"]*)"`)
	twoNames   = regexp.MustCompile(`^(?:\w+<([^>]*)>, )?"([^"]*)", (?:\w+<([^>]*)>, )?"([^"]*)"`)
	isCreating = regexp.MustCompile(`\bO_CREAT\b`)
)

func newDisk() *disk {
	return &disk{now: map[string]*inode{}, safe: map[string]*inode{}, changed: map[string]map[string]int{}, begun: map[int]int{}}
}

// feed takes one step. A call changes the disk at its end, if it succeeded.
func (d *disk) feed(s strace.Step) {
	path := pathIn(ofFile, s.Args)
	if !s.Ended {
		d.begun[s.PID] = d.clock
		if s.Call == "write" || s.Call == "pwrite64" {
			d.overwrite(path)
		}
		return
	}
	if !s.OK {
		d.fail(s.Call, path)
		return
	}
	d.clock++
	switch s.Call {
	case "openat":
		if name := pathIn(oneName, s.Args); isCreating.MatchString(s.Args) && d.now[name] == nil {
			d.link(name, &inode{written: d.clock})
		}
	case "mkdir", "mkdirat":
		d.link(pathIn(oneName, s.Args), &inode{})
	case "write", "pwrite64":
		if f := d.now[path]; f != nil {
			f.written = d.clock
			if m := stateOf.FindStringSubmatch(s.Args); m != nil {
				f.state = m[1]
			}
		}
	case "rename", "renameat", "renameat2":
		if m := twoNames.FindStringSubmatch(s.Args); m != nil {
			from, to := absolute(m[1], m[2]), absolute(m[3], m[4])
			d.link(to, d.now[from])
			d.link(from, nil)
		}
	case "unlinkat":
		d.link(pathIn(oneName, s.Args), nil)
	case "fsync", "fdatasync":
		d.sync(path, d.begun[s.PID])
	}
}

// link gives a name to an inode, or takes it away (nil).
func (d *disk) link(name string, f *inode) {
	folder := filepath.Dir(name)
	if d.changed[folder] == nil {
		d.changed[folder] = map[string]int{}
	}
	d.changed[folder][name] = d.clock
	d.now[name] = f
	if f == nil || !isRecord(name) {
		return
	}
	d.made++
	if f.failed {
		d.wrong = append(d.wrong, fmt.Sprintf("%s is made of a file with which something has failed", name))
	}
}

// overwrite is the begin of a write to a file: from now on its content may be on disk.
func (d *disk) overwrite(path string) {
	f := d.now[path]
	switch {
	case f == nil:
	case f.failed:
		d.wrong = append(d.wrong, fmt.Sprintf("%s is written, and something has failed with it before", path))
	case f.synced > 0 || isRecord(path):
		d.wrong = append(d.wrong, fmt.Sprintf("%s is written again, and on disk it may be a record", path))
	}
}

// fail takes a call that failed. A failed fsync of a folder makes nothing durable.
func (d *disk) fail(call, path string) {
	if f := d.now[path]; f != nil && slices.Contains([]string{"write", "pwrite64", "fsync", "fdatasync"}, call) && d.changed[path] == nil {
		f.failed = true
	}
}

// isRecord tells whether a name is that of a record.
func isRecord(name string) bool {
	return strings.HasSuffix(name, ".json") && !strings.HasPrefix(filepath.Base(name), ".")
}

// sync makes durable what was so when the fsync began.
func (d *disk) sync(path string, began int) {
	if f := d.now[path]; f != nil && f.written <= began {
		f.synced = d.clock
	}
	for name, since := range d.changed[path] {
		if since <= began {
			d.safe[name] = d.now[name]
			delete(d.changed[path], name)
		}
	}
}

// left is the state of a record that a power loss would leave now.
func (d *disk) left(name string) string {
	// A folder that was made is lost with everything in it unless its own name
	// is safe.
	for folder := filepath.Dir(name); folder != "/"; folder = filepath.Dir(folder) {
		if d.now[folder] != nil && d.safe[folder] == nil {
			return none
		}
	}
	f := d.safe[name]
	switch {
	case f == nil:
		return none
	case f.synced < f.written:
		return torn
	default:
		return f.state
	}
}

// pathIn is the path that the first groups of a pattern name in a call's arguments.
func pathIn(pattern *regexp.Regexp, args string) string {
	m := pattern.FindStringSubmatch(args)
	switch len(m) {
	case 2:
		return m[1]
	case 3:
		return absolute(m[1], m[2])
	default:
		return ""
	}
}

func absolute(folder, name string) string {
	if strings.HasPrefix(name, "/") {
		return filepath.Clean(name)
	}
	return filepath.Join(folder, name)
}
