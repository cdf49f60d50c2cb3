package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// inodes returns the inodes of the files in attachments/ by name.
func inodes(t *testing.T, dir string) map[string]uint64 {
	t.Helper()
	found := map[string]uint64{}
	for _, name := range names(t, filepath.Join(dir, attachmentsName)) {
		info, err := os.Lstat(attachmentFile(dir, name))
		must(t, err)
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatal("files have no inodes here")
		}
		found[name] = stat.Ino
	}
	return found
}

// spareFiles returns the paths of the spares.
func spareFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(attachmentFile(dir, ".spare.json*"))
	must(t, err)
	return paths
}

// nextLife is what the next start of the process finds.
func nextLife(t *testing.T, dir string) Loaded {
	t.Helper()
	scratch := t.TempDir()
	must(t, os.CopyFS(filepath.Join(scratch, attachmentsName), os.DirFS(filepath.Join(dir, attachmentsName))))
	return load(t, open(t, scratch))
}

// generations writes a record so many times, and returns the last.
func generations(t *testing.T, j *Journal, containerID string, n int) record.Record {
	t.Helper()
	r := sample(containerID)
	for r.Generation = range n {
		write(t, j, r)
	}
	return r
}

func TestTheFilesOfWhatWasReplacedOrRemovedAreWrittenOver(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	generations(t, j, "a", 2)
	generations(t, j, "b", 2)
	must(t, j.Remove("b"))
	all := func() []uint64 {
		var files []uint64
		for _, inode := range inodes(t, dir) {
			files = append(files, inode)
		}
		slices.Sort(files)
		return files
	}
	before := all()
	for _, id := range []string{"c", "d", "e"} {
		generations(t, j, id, 3)
		generations(t, j, "a", 3)
		must(t, j.Remove(id))
	}
	if after := all(); !slices.Equal(after, before) {
		t.Errorf("the files were the inodes %d and are %d; want the same ones again", before, after)
	}
	if got, want := nextLife(t, dir), (Loaded{Records: []record.Record{generations(t, j, "a", 3)}}); !reflect.DeepEqual(got, want) {
		t.Errorf("the next life finds %+v; want %+v", got, want)
	}
}

func TestThereAreNeverMoreSparesThanHavePlaces(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var all sync.WaitGroup
	for n := range 3 * mostSpares {
		all.Go(func() {
			r := sample(fmt.Sprint("id", n))
			for r.Generation = range 3 {
				if err := j.Write(r); err != nil {
					t.Error(err)
				}
			}
			if n%3 > 0 {
				if err := j.Remove(r.ContainerID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := len(spareFiles(t, dir)); n == 0 || n > mostSpares || n != len(j.spares.free) || n != j.spares.places {
		t.Errorf("there are %d spares in the folder, %d to be taken and %d places of %d are taken", n, len(j.spares.free), j.spares.places, mostSpares)
	}
	got := nextLife(t, dir)
	if len(got.Records) != mostSpares || len(got.Problems) > 0 {
		t.Errorf("the next life finds %d records and %+v; want %d", len(got.Records), got.Problems, mostSpares)
	}
	for _, r := range got.Records {
		if want := sample(r.ContainerID); r.Generation != 2 || r.Owner != want.Owner {
			t.Errorf("it finds %+v", r)
		}
	}
}

func TestASpareThatIsTornWhereverHarmsNobody(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	want := Loaded{Records: []record.Record{generations(t, j, "a", 2), generations(t, j, "b", 2)}}
	spares := spareFiles(t, dir)
	if len(spares) == 0 {
		t.Fatal("there is no spare")
	}
	f, err := os.OpenFile(spares[0], os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	next := good(t, "b")
	for n := 0; n < len(next); n += 64 {
		_, err := f.WriteAt(next[n:n+64], int64(n))
		must(t, err)
		if got := nextLife(t, dir); !reflect.DeepEqual(got, want) {
			t.Fatalf("with %d bytes written over, the next life finds %+v; want %+v", n+64, got, want)
		}
	}
}

func TestAFileThatSomebodyElseMayHaveIsNoSpare(t *testing.T) {
	tests := map[string]func(t *testing.T, dir, file string){
		"it has another name": func(t *testing.T, dir, file string) { must(t, os.Link(file, filepath.Join(dir, "backup"))) },
		"it has another mode": func(t *testing.T, _, file string) { must(t, os.Chmod(file, 0o640)) },
		"it has no spaces, as before there were spares": func(t *testing.T, _, file string) {
			data, err := os.ReadFile(file)
			must(t, err)
			must(t, os.WriteFile(file, append([]byte(strings.TrimRight(string(data), " \n")), '\n'), 0o600))
		},
		"it has more than a block": func(t *testing.T, _, file string) { must(t, os.Truncate(file, 2*block)) },
		"it is a symbolic link": func(t *testing.T, dir, file string) {
			must(t, os.Rename(file, filepath.Join(dir, "real")))
			must(t, os.Symlink(filepath.Join(dir, "real"), file))
		},
	}
	for name, change := range tests {
		for way, goes := range map[string]func(t *testing.T, j *Journal, containerID string){
			"replaced": func(t *testing.T, j *Journal, containerID string) { generations(t, j, containerID, 3) },
			"removed":  func(t *testing.T, j *Journal, containerID string) { must(t, j.Remove(containerID)) },
		} {
			t.Run(name+" and is "+way, func(t *testing.T) {
				dir := t.TempDir()
				j := open(t, dir)
				write(t, j, sample("a"))
				file := attachmentFile(dir, "a.json")
				change(t, dir, file)
				kept, err := os.Open(file) // whatever becomes of its name
				must(t, err)
				defer kept.Close()
				info, err := kept.Stat()
				must(t, err)
				content := make([]byte, info.Size())
				_, err = kept.ReadAt(content, 0)
				must(t, err)

				goes(t, j, "a")
				for range 4 {
					generations(t, j, "b", 2)
					generations(t, j, "c", 2)
				}
				now := make([]byte, info.Size())
				_, err = kept.ReadAt(now, 0)
				must(t, err)
				if string(now) != string(content) {
					t.Errorf("it was\n%.200q\nand was written over by\n%.200q", content, now)
				}
			})
		}
	}
}

func TestWhatIsPlantedInThePlaceOfASpareIsLeftAlone(t *testing.T) {
	tests := map[string]func(t *testing.T, spare, precious string){
		"a symbolic link":        func(t *testing.T, spare, precious string) { must(t, os.Symlink(precious, spare)) },
		"another name of a file": func(t *testing.T, spare, precious string) { must(t, os.Link(precious, spare)) },
		"a pipe":                 func(t *testing.T, spare, _ string) { must(t, syscall.Mkfifo(spare, 0o600)) },
		"a folder":               func(t *testing.T, spare, _ string) { must(t, os.Mkdir(spare, 0o700)) },
		"nothing":                func(*testing.T, string, string) {},
	}
	for name, plant := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			generations(t, j, "a", 2)
			precious := filepath.Join(dir, "precious")
			text := strings.Repeat("p", block)
			must(t, os.WriteFile(precious, []byte(text), 0o600))
			for _, spare := range spareFiles(t, dir) {
				must(t, os.Remove(spare))
				plant(t, spare, precious)
			}
			want := generations(t, j, "a", 3)
			if got := load(t, j).Records; !reflect.DeepEqual(got, []record.Record{want}) {
				t.Errorf("loaded %+v; want %+v", got, want)
			}
			if data, err := os.ReadFile(precious); err != nil || string(data) != text {
				t.Errorf("the other file is %.100q now, %v", data, err)
			}
		})
	}
}

func TestARecordOfMoreThanABlockIsWrittenAndReplacedLikeAnyOther(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	r := sample("a")
	for _, size := range []int{0, block, 3 * block, 10, 2 * block, 0} {
		r.Node = strings.Repeat("n", size)
		write(t, j, r)
		if got, want := nextLife(t, dir), (Loaded{Records: []record.Record{r}}); !reflect.DeepEqual(got, want) {
			t.Errorf("of a record with %d bytes more the next life finds %.300v", size, got)
		}
	}
	for _, file := range spareFiles(t, dir) {
		if info, err := os.Lstat(file); err != nil || info.Size() != block {
			t.Errorf("the spare %s has %d bytes, %v", file, info.Size(), err)
		}
	}
}

func TestALoadTakesEverySpareAway(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	generations(t, j, "a", 3)
	want := generations(t, j, "b", 3)
	must(t, j.Remove("a"))
	load(t, j)
	if left := names(t, filepath.Join(dir, attachmentsName)); !slices.Equal(left, []string{"b.json"}) {
		t.Errorf("attachments/ has %q", left)
	}
	if len(j.spares.free)+j.spares.places > 0 {
		t.Errorf("%q can be taken still, and %d places are taken", j.spares.free, j.spares.places)
	}
	want.Generation = 7
	write(t, j, want)
	if got := load(t, j).Records; !reflect.DeepEqual(got, []record.Record{want}) {
		t.Errorf("loaded %+v; want %+v", got, want)
	}
}

func TestANameThatAnEarlierLifeHasLeftIsNotTaken(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	generations(t, first, "a", 3)
	left := spareFiles(t, dir)
	must(t, first.Close())
	want := generations(t, open(t, dir), "b", 2) // it has not loaded anything yet
	for _, file := range left {
		if _, err := os.Lstat(file); err != nil {
			t.Error(err)
		}
	}
	got := nextLife(t, dir).Records
	if len(got) != 2 || !reflect.DeepEqual(got[1], want) {
		t.Errorf("the next life finds %+v; want %+v, too", got, want)
	}
}

// The last spare is for those who give one back.
func TestAFirstRecordDoesNotTakeTheLastSpare(t *testing.T) {
	s := &spares{free: []string{"x", "y"}, places: 2}
	if name, ok := s.take(true); !ok || name != "y" {
		t.Errorf("of two it takes %q, %t; want one", name, ok)
	}
	if name, ok := s.take(true); ok {
		t.Errorf("it takes the last, %q", name)
	}
	if name, ok := s.take(false); !ok || name != "x" {
		t.Errorf("another takes %q, %t; want the last", name, ok)
	}
}

func TestAFolderInTheWayOfARecordTakesNoSpare(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	generations(t, j, "a", 3)
	must(t, os.MkdirAll(attachmentFile(dir, "b.json/x"), 0o700))
	for range 2 * mostSpares {
		if err := j.Write(sample("b")); !errors.Is(err, syscall.EISDIR) {
			t.Fatalf("written over a folder: %v", err)
		}
	}
	if n := len(spareFiles(t, dir)); n != len(j.spares.free) || n != j.spares.places {
		t.Errorf("there are %d spares in the folder, %d to be taken, and %d places are taken", n, len(j.spares.free), j.spares.places)
	}
}

func TestARemovalThatFailsTakesNoPlace(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	generations(t, j, "a", 2)
	for range 2 * mostSpares {
		inTheWay := attachmentFile(dir, fmt.Sprintf(".spare.json%d", j.spares.named+1))
		must(t, os.Mkdir(inTheWay, 0o700))
		if err := j.Remove("a"); err == nil {
			t.Fatal("it was renamed to a folder")
		}
	}
	must(t, j.Remove("a"))
	if n := len(j.spares.free); n != 2 || j.spares.places != n {
		t.Errorf("%d spares can be taken, and %d places are taken; want 2", n, j.spares.places)
	}
}
