package journal

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func inode(t *testing.T, dir string) uint64 {
	t.Helper()
	info, err := os.Lstat(attachmentFile(dir, "a.json"))
	check.Must(t, err)
	return info.Sys().(*syscall.Stat_t).Ino
}

func generation(n int) record.Record {
	r := sample("a")
	r.Generation = n
	return r
}

// large is a record that needs more than one block.
func large() record.Record {
	r := sample("a")
	r.Node = strings.Repeat("n", blockSize)
	return r
}

func TestOverwrite(t *testing.T) {
	link := func(t *testing.T, dir string) {
		check.Must(t, os.Link(attachmentFile(dir, "a.json"), attachmentFile(dir, "../copy")))
	}
	for name, tt := range map[string]struct {
		first, second record.Record
		between       func(t *testing.T, dir string)
		overwritten   bool
	}{
		"small":            {generation(1), generation(2), nil, true},
		"first is large":   {large(), generation(2), nil, false},
		"second is large":  {generation(1), large(), nil, false},
		"with a hard link": {generation(1), generation(2), link, false},
		"another file": {generation(1), generation(2), func(t *testing.T, dir string) {
			link(t, dir)
			check.Must(t, os.Remove(attachmentFile(dir, "a.json")))
			check.Must(t, os.WriteFile(attachmentFile(dir, "a.json"), encoded(t, "a"), 0o600))
		}, false},
		"link to it": {generation(1), generation(2), func(t *testing.T, dir string) {
			check.Must(t, os.Rename(attachmentFile(dir, "a.json"), attachmentFile(dir, "../moved")))
			check.Must(t, os.Symlink("../moved", attachmentFile(dir, "a.json")))
		}, false},
		"of another size": {generation(1), generation(2), func(t *testing.T, dir string) {
			check.Must(t, os.Truncate(attachmentFile(dir, "a.json"), blockSize))
		}, false},
		"removed": {generation(1), generation(2), func(t *testing.T, dir string) {
			link(t, dir)
			check.Must(t, os.Remove(attachmentFile(dir, "a.json")))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			write(t, j, tt.first)
			before := inode(t, dir)
			if tt.between != nil {
				tt.between(t, dir)
			}
			copied, copyErr := os.ReadFile(attachmentFile(dir, "../copy"))
			write(t, j, tt.second)
			check.Equal(t, "same file", inode(t, dir) == before, tt.overwritten)
			check.Equal(t, "records", load(t, open(t, dir)).Records, []record.Record{tt.second})
			if now, err := os.ReadFile(attachmentFile(dir, "../copy")); copyErr == nil && (err != nil || !bytes.Equal(now, copied)) {
				t.Errorf("the copy was changed, %v", err)
			}
		})
	}
}

// A file that another process wrote, or of which a write failed, is replaced.
func TestOverwriteOnlyOwnFiles(t *testing.T) {
	dir := t.TempDir()
	check.Tmpfs(t, dir, "0700")
	remount := func(flags uintptr) { check.Must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "")) }
	j := open(t, dir)
	for n, step := range []struct {
		before func()
		same   bool
	}{
		{func() {}, false},
		{func() {}, true},
		{func() { j = open(t, dir) }, false},
		{func() {}, true},
		{func() {}, true},
		{func() {
			remount(unix.MS_RDONLY)
			check.Error(t, j.Write(generation(9)))
			remount(0)
		}, false},
		{func() {}, true},
		{func() { check.Must(t, j.Remove("a")); write(t, j, large()) }, false},
	} {
		step.before()
		before := uint64(0)
		if n > 0 {
			before = inode(t, dir)
		}
		write(t, j, generation(n))
		check.Equal(t, "same file in step "+strconv.Itoa(n), inode(t, dir) == before, step.same)
		check.Equal(t, "records", load(t, open(t, dir)).Records, []record.Record{generation(n)})
	}
}

// A power loss leaves each sector of a half that is being written old, new or with other bytes. Then the
// record is the old or the new one in the next boot; in this boot such a half is damage.
func TestTornHalf(t *testing.T) {
	const sector = 512
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		check.Must(t, err)
		j, err := Open(dir, Options{BootID: "boot"})
		check.Must(t, err)
		defer func() { check.Must(t, j.Close()) }()
		last := rapid.IntRange(1, 4).Draw(rt, "writes")
		for n := range last {
			write(t, j, generation(n))
		}
		before, err := os.ReadFile(attachmentFile(dir, "a.json"))
		check.Must(t, err)
		write(t, j, generation(last))
		after, err := os.ReadFile(attachmentFile(dir, "a.json"))
		check.Must(t, err)
		other := last % 2 * blockSize // the half that is written
		check.True(t, bytes.Equal(before[blockSize-other:2*blockSize-other], after[blockSize-other:2*blockSize-other]), "both halves were written")
		torn := bytes.Clone(before)
		for at := other; at < other+blockSize; at += sector {
			copy(torn[at:], rapid.SampledFrom([][]byte{before[at : at+sector], after[at : at+sector], make([]byte, sector)}).Draw(rt, "sector"))
		}
		whole := bytes.Equal(torn, before) || bytes.Equal(torn, after)
		check.Must(t, os.WriteFile(attachmentFile(dir, "a.json"), torn, 0o600))

		want := generation(last - 1)
		if bytes.Equal(torn, after) {
			want = generation(last)
		}
		got, err := decode(torn, "next boot")
		check.True(t, err == nil && sameRecord(got, want), "in the next boot: %+v, %v; want %+v", got, err, want)
		if got, err := decode(torn, "boot"); whole != (err == nil) || whole && !sameRecord(got, want) {
			rt.Fatalf("in this boot: %+v, %v; whole: %t", got, err, whole)
		}
	})
}
