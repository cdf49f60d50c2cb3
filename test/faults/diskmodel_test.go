package faults

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

// diskModel computes the state of the disk after a power loss from the steps of a trace: the content of a
// file is durable after fsync of the file, and a new, changed or removed name after fsync of its
// directory (fsync(2)).
//
// Other changes may be on disk too. So a part of a record's file may be written only while another part,
// written last, is durable: the part that is being written at a power loss is torn.
type diskModel struct {
	// visible has the files that processes see, durable those after a power loss; by path.
	visible, durable map[string]*modelFile
	// changed has the names of a directory that differ between the two, and the time of the change.
	changed map[string]map[string]int
	// recordCount counts the files that became records; violations has forbidden writes and names.
	recordCount int
	violations  []string
	// clock counts changes; syncStart is the time at which the pending fsync of a thread started.
	// Later changes need not be included.
	clock     int
	syncStart map[int]int
}

// modelFile is a file or directory.
type modelFile struct {
	// parts are what was written to it, the last one at the end.
	parts []modelPart
	// synced reports that an fsync has succeeded.
	synced bool
	// failed means that a write or an fsync has failed: the content on disk is unknown from then on.
	failed bool
}

// modelPart is what one write has written to a file.
type modelPart struct {
	from, to int
	// state is the state of the record; empty if it has none.
	state string
	// written is the time of the write; durable reports that an fsync has followed it.
	written int
	durable bool
}

// newest returns the part that was written last, nil if none was.
func (f *modelFile) newest() *modelPart {
	if len(f.parts) == 0 {
		return nil
	}
	return &f.parts[len(f.parts)-1]
}

// none is the state of a missing record, torn the state of a record whose content may be lost.
const (
	none = "none"
	torn = "torn"
)

var (
	fileArg    = regexp.MustCompile(`^\d+<([^>]*)>`)
	stateField = regexp.MustCompile(`\\"state\\":\\"([a-z]+)\\"`)
	nameArg    = regexp.MustCompile(`^(?:\w+<([^>]*)>, )?"([^"]*)"`)
	writeArgs  = regexp.MustCompile(`^\d+<[^>]*>, (".*"), (\d+)(?:, (\d+))?$`)
	nameArgs   = regexp.MustCompile(`^(?:\w+<([^>]*)>, )?"([^"]*)", (?:\w+<([^>]*)>, )?"([^"]*)"`)
)

// apply applies one step. A successful call takes effect at its end.
func (d *diskModel) apply(s strace.Step) {
	path := pathIn(fileArg, s.Args)
	if !s.Ended {
		d.syncStart[s.PID] = d.clock
		if s.Call == "write" || s.Call == "pwrite64" {
			d.startWrite(path, writtenPart(s))
		}
		return
	}
	content := strings.Contains(s.Call, "write") || strings.HasSuffix(s.Call, "sync")
	if f := d.visible[path]; !s.OK && content && f != nil && d.changed[path] == nil {
		f.failed = true // not a directory, of which a failed fsync makes nothing durable
	}
	if !s.OK {
		return
	}
	d.clock++
	switch s.Call {
	case "openat":
		if name := pathIn(nameArg, s.Args); strings.Contains(s.Args, "O_CREAT") && d.visible[name] == nil {
			d.link(name, &modelFile{})
		}
	case "mkdir", "mkdirat":
		d.link(pathIn(nameArg, s.Args), &modelFile{})
	case "write", "pwrite64":
		if f := d.visible[path]; f != nil {
			p := writtenPart(s)
			p.written = d.clock
			f.parts = append(slices.DeleteFunc(f.parts, p.overlaps), p)
		}
	case "rename", "renameat", "renameat2":
		if m := nameArgs.FindStringSubmatch(s.Args); m != nil {
			from, to := absolute(m[1], m[2]), absolute(m[3], m[4])
			d.link(to, d.visible[from])
			d.link(from, nil)
		}
	case "unlinkat":
		d.link(pathIn(nameArg, s.Args), nil)
	case "fsync", "fdatasync":
		d.sync(path, d.syncStart[s.PID])
	}
}

// link assigns a file to a name, or removes the name (nil).
func (d *diskModel) link(name string, f *modelFile) {
	directory := filepath.Dir(name)
	if d.changed[directory] == nil {
		d.changed[directory] = map[string]int{}
	}
	d.changed[directory][name] = d.clock
	d.visible[name] = f
	if f == nil || !isRecord(name) {
		return
	}
	d.recordCount++
	if f.failed {
		d.violations = append(d.violations, fmt.Sprintf("%s is made of a file after a failed write or fsync", name))
	}
}

// writtenPart returns what a write or pwrite64 writes, without what follows the line of a record. A write
// is the only one to its file.
func writtenPart(s strace.Step) (p modelPart) {
	m := writeArgs.FindStringSubmatch(s.Args)
	if m == nil {
		return p
	}
	p.from, _ = strconv.Atoi(m[3]) // digits, by the pattern, or nothing
	length, _ := strconv.Atoi(m[2])
	if state := stateField.FindStringSubmatch(s.Args); state != nil {
		p.state = state[1]
		if text, err := strconv.Unquote(m[1]); err == nil && strings.Contains(text, "\n") {
			length = strings.Index(text, "\n") + 1
		}
	}
	p.to = p.from + length
	return p
}

func (p modelPart) overlaps(other modelPart) bool { return p.from < other.to && other.from < p.to }

// startWrite records the start of a write, from which on the content may be on disk.
func (d *diskModel) startWrite(path string, p modelPart) {
	f := d.visible[path]
	if f == nil {
		return
	}
	last := f.newest()
	switch {
	case f.failed:
		d.violations = append(d.violations, fmt.Sprintf("%s is written after a failed write or fsync", path))
	case !f.synced && !isRecord(path):
	case last == nil || !last.durable || p.overlaps(*last):
		d.violations = append(d.violations, fmt.Sprintf("%s is written again and may be a record on disk", path))
	}
}

// isRecord reports whether a file of this name is a record.
func isRecord(name string) bool {
	return strings.HasSuffix(name, ".json") && !strings.HasPrefix(filepath.Base(name), ".")
}

// sync makes the changes durable that precede the start of the fsync.
func (d *diskModel) sync(path string, began int) {
	if f := d.visible[path]; f != nil {
		f.synced = true
		for i := range f.parts {
			f.parts[i].durable = f.parts[i].durable || f.parts[i].written <= began
		}
	}
	for name, since := range d.changed[path] {
		if since <= began {
			d.durable[name] = d.visible[name]
			delete(d.changed[path], name)
		}
	}
}

// afterPowerLoss returns the state of a record after a power loss at this time.
func (d *diskModel) afterPowerLoss(name string) string {
	// A new directory is lost with its content unless its own name is durable.
	for directory := filepath.Dir(name); directory != "/"; directory = filepath.Dir(directory) {
		if d.visible[directory] != nil && d.durable[directory] == nil {
			return none
		}
	}
	f := d.durable[name]
	if f == nil {
		return none
	}
	for _, p := range slices.Backward(f.parts) {
		if p.durable {
			return p.state
		}
	}
	return torn
}

// pathIn returns the path that the first groups of a pattern match in the arguments of a call.
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

func absolute(directory, name string) string {
	if strings.HasPrefix(name, "/") {
		return filepath.Clean(name)
	}
	return filepath.Join(directory, name)
}
