package faults

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

// diskModel computes what a disk has after a power loss from the steps of a trace: the content of a file is durable
// after fsync of the file, and a new, changed or removed name after fsync of its directory (fsync(2)). Of other changes
// any may be on the disk, too, and of a write any sectors.
type diskModel struct {
	// visible has the files that processes see, durable those after a power loss; by path.
	visible, durable map[string]*modelFile
	// changed has the names of a directory that differ between the two, and the time of the change.
	changed map[string]map[string]int
	// clock counts changes; syncStart is the time at which the pending fsync of a thread started.
	// Later changes need not be included.
	clock     int
	syncStart map[int]int
}

// modelFile is a file or directory.
type modelFile struct {
	// synced is the content after the last fsync; pending are the later writes.
	synced  []byte
	pending []modelWrite
	// failed means that a write or an fsync has failed: the content on disk is unknown from then on.
	failed bool
}

// modelWrite is a write at an offset; data is nil for a new size.
type modelWrite struct {
	at, time int
	data     []byte
}

// sector is the part of a file that a disk writes as a whole, in bytes.
const sector = 512

func (w modelWrite) applyTo(content []byte) []byte {
	if w.data == nil {
		return append(content, make([]byte, max(0, w.at-len(content)))...)[:w.at]
	}
	if missing := w.at + len(w.data) - len(content); missing > 0 {
		content = append(content, make([]byte, missing)...)
	}
	copy(content[w.at:], w.data)
	return content
}

// content returns what the disk may have of a file: what is synced, and those sectors of other writes that pass.
func (f *modelFile) content(pass func() bool) []byte {
	content := slices.Clone(f.synced)
	for _, w := range f.pending {
		if w.data == nil {
			if pass() {
				content = w.applyTo(content)
			}
			continue
		}
		for at := 0; at < len(w.data); at += sector {
			if pass() {
				content = modelWrite{at: w.at + at, data: w.data[at:min(at+sector, len(w.data))]}.applyTo(content)
			}
		}
	}
	return content
}

var (
	fileArg  = regexp.MustCompile(`^\d+<([^>]*)>`)
	nameArg  = regexp.MustCompile(`^(?:\w+<([^>]*)>, )?"([^"]*)"`)
	writeArg = regexp.MustCompile(`^\d+<[^>]*>, ("[^"]*"), \d+(?:, (\d+))?$`)
	sizeArg  = regexp.MustCompile(`, (\d+)$`)
	nameArgs = regexp.MustCompile(`^(?:\w+<([^>]*)>, )?"([^"]*)", (?:\w+<([^>]*)>, )?"([^"]*)"`)
)

// apply applies one step. A successful call takes effect at its end.
func (d *diskModel) apply(s strace.Step) {
	path := pathIn(fileArg, s.Args)
	if !s.Ended {
		d.syncStart[s.PID] = d.clock
		return
	}
	f := d.visible[path]
	if content := strings.Contains(s.Call, "write") || strings.HasSuffix(s.Call, "sync"); !s.OK && content && f != nil {
		f.failed = true
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
	case "pwrite64":
		if m := writeArg.FindStringSubmatch(s.Args); f != nil && m != nil {
			text, _ := strconv.Unquote(m[1]) // as strace writes it
			at, _ := strconv.Atoi(m[2])
			f.pending = append(f.pending, modelWrite{at, d.clock, []byte(text)})
		}
	case "ftruncate":
		if m := sizeArg.FindStringSubmatch(s.Args); f != nil && m != nil {
			size, _ := strconv.Atoi(m[1])
			f.pending = append(f.pending, modelWrite{size, d.clock, nil})
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
}

// sync makes the changes durable that precede the start of the fsync.
func (d *diskModel) sync(path string, began int) {
	if f := d.visible[path]; f != nil {
		for len(f.pending) > 0 && f.pending[0].time <= began {
			f.synced = f.pending[0].applyTo(f.synced)
			f.pending = f.pending[1:]
		}
	}
	for name, since := range d.changed[path] {
		if since <= began {
			d.durable[name] = d.visible[name]
			delete(d.changed[path], name)
		}
	}
}

// journal returns the journal in a state directory after a power loss at this time, as the records and what is damaged.
// pass decides which changes that are not synced are on the disk.
func (d *diskModel) journal(t *testing.T, stateDir string, pass func() bool) (journal.Loaded, error) {
	t.Helper()
	// A new directory is lost with its content unless its own name is durable.
	for directory := stateDir; directory != "/"; directory = filepath.Dir(directory) {
		if d.visible[directory] != nil && d.durable[directory] == nil {
			return journal.Loaded{}, nil
		}
	}
	const name = "journal.db"
	path := filepath.Join(stateDir, name)
	f := d.durable[path]
	if _, changed := d.changed[stateDir][path]; changed && pass() {
		f = d.visible[path]
	}
	image := t.TempDir()
	if f != nil {
		check.Must(t, os.WriteFile(filepath.Join(image, name), f.content(pass), 0o600))
	}
	_, all, err := journal.Read(image)
	return all, err
}

func nothingElse() bool { return false }

// stateOf returns the state of an owner in a journal after a power loss at this time, at which only what is synced is on
// the disk; "none" without a record.
func (d *diskModel) stateOf(t *testing.T, stateDir, owner string) string {
	t.Helper()
	all, err := d.journal(t, stateDir, nothingElse)
	if err != nil {
		return err.Error()
	}
	for _, r := range all.Records {
		if r.Owner == owner {
			return string(r.State)
		}
	}
	return none
}

// none is the state of a missing record.
const none = "none"

func newDiskModel() *diskModel {
	return &diskModel{
		visible: map[string]*modelFile{}, durable: map[string]*modelFile{},
		changed: map[string]map[string]int{}, syncStart: map[int]int{},
	}
}

// lose returns a function that loses a part of the changes that are not synced.
func lose(dice *rand.Rand) func() bool {
	percent := []int{10, 50, 90, 100}[dice.IntN(4)]
	return func() bool { return dice.IntN(100) < percent }
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

// A trace is a list of steps; "!" ends a step that fails.
func TestDiskModel(t *testing.T) {
	steps := map[string]string{
		"open":      `7 openat(3</s>, "new", O_RDWR|O_CREAT|O_EXCL, 0600) = 5</s/new>`,
		"write":     `7 pwrite64(5</s/new>, "\x61\x62", 2, 1) = 2`,
		"cut":       `7 ftruncate(5</s/new>, 2) = 0`,
		"fsync":     `7 fsync(5</s/new>) = 0`,
		"begin":     `8 fsync(5</s/new> <unfinished ...>`,
		"end":       `8 <... fsync resumed>) = 0`,
		"rename":    `7 renameat(3</s>, "new", 3</s>, "file") = 0`,
		"again":     `7 pwrite64(5</s/file>, "c", 1, 0) = 1`,
		"datasync":  `7 fdatasync(5</s/file>) = 0`,
		"fsync-dir": `7 fsync(6</s>) = 0`,
		"remove":    `7 unlinkat(3</s>, "file", 0) = 0`,
	}
	for trace, want := range map[string]string{
		"open write":                                               "",
		"open write fsync rename":                                  "",
		"open write rename fsync-dir":                              "file: ",
		"open write fsync rename fsync-dir":                        "file: \x00ab",
		"open write fsync! rename fsync-dir":                       "file: ",
		"open write! fsync rename fsync-dir":                       "file: ",
		"open begin write end rename fsync-dir":                    "file: ",
		"open write begin end rename fsync-dir":                    "file: \x00ab",
		"open write cut fsync rename fsync-dir":                    "file: \x00a",
		"open write fsync fsync-dir rename":                        "new: \x00ab",
		"open write fsync rename fsync-dir again":                  "file: \x00ab",
		"open write fsync rename fsync-dir again datasync":         "file: cab",
		"open write fsync rename fsync-dir remove":                 "file: \x00ab",
		"open write fsync rename fsync-dir remove fsync-dir again": "",
	} {
		d := newDiskModel()
		var lines []string
		for step := range strings.FieldsSeq(trace) {
			name, failed := strings.CutSuffix(step, "!")
			line := steps[name]
			if failed {
				line = line[:strings.LastIndex(line, " = ")] + " = -1 EIO (Input/output error)"
			}
			lines = append(lines, line)
		}
		for _, s := range strace.Parse(strings.Join(lines, "\n")) {
			d.apply(s)
		}
		got := ""
		for _, name := range slices.Sorted(maps.Keys(d.durable)) {
			if f := d.durable[name]; f != nil {
				got += filepath.Base(name) + ": " + string(f.content(nothingElse))
			}
		}
		if got != want {
			t.Errorf("%s: the disk has %q; want %q", trace, got, want)
		}
	}
	f := &modelFile{pending: []modelWrite{{at: 0, data: make([]byte, 2*sector)}, {at: sector, data: []byte("x")}}}
	second := 0
	torn := f.content(func() bool { second++; return second == 2 })
	if len(torn) != 2*sector {
		t.Errorf("a torn write leaves %d bytes; want that its second sector is on the disk", len(torn))
	}
}
