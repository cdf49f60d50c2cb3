package journal

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// encoded returns the file of a record's first write.
func encoded(t testing.TB, containerID string) []byte {
	t.Helper()
	return fileOf(t, sample(containerID))
}

func fileOf(t testing.TB, r record.Record) []byte {
	t.Helper()
	j := &Journal{options: Options{BootID: "boot"}}
	raw, err := j.encode(r)
	check.Must(t, err)
	half := j.seal(1, raw)
	return append(half, blank(len(half))...)
}

func sameRecord(a, b record.Record) bool {
	x, errX := (&Journal{}).encode(a)
	y, errY := (&Journal{}).encode(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func TestDecodeTorn(t *testing.T) {
	data := encoded(t, "a")
	for n := range data {
		_, err := decode(data[:n], "boot")
		check.True(t, err != nil, "the first %d of %d bytes are accepted", n, len(data))
	}
}

func TestDecodeFlippedBit(t *testing.T) {
	data := encoded(t, "a")
	for i := range data {
		for bit := range 8 {
			flipped := bytes.Clone(data)
			flipped[i] ^= 1 << bit
			_, err := decode(flipped, "boot")
			check.True(t, err != nil, "bit %d of byte %d (%q for %q) is accepted", bit, i, flipped[i], data[i])
		}
	}
}

var update = flag.Bool("update", false, "rewrite the file of the present format in testdata")

// Once a release has written the format, its file changes with the number only.
func TestFormat(t *testing.T) {
	path := fmt.Sprintf("testdata/format-%d.json", version)
	data := encoded(t, "a")
	line := append(bytes.TrimRight(bytes.Clone(data), " \n"), '\n')
	if *update {
		check.Must(t, os.WriteFile(path, line, 0o644))
	}
	want, err := os.ReadFile(path)
	check.Must(t, err)
	if !bytes.Equal(line, want) {
		t.Errorf("the record is written as\n%s\nwant as in %s; after an intended change run this test with -update and read the difference", line, path)
	}
	check.Equal(t, "size of the file", len(data), 2*blockSize)
	if r, err := decode(data, "boot"); err != nil || !sameRecord(r, sample("a")) {
		t.Errorf("%s is read as %+v, %v", path, r, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, "a"))
	f.Add([]byte(`{"version":4,"record":{"owner":1}}`))
	f.Add([]byte(`{"version":3,"sha256":"","sequence":1,"bootID":"","record":null}`))
	f.Add([]byte(`{"containerID":"a","owner":"o","pool":"p","state":"adding","invocations":[{"config":{}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decode(data, "boot"); err == nil {
			check.NoError(t, r.Validate())
		}
		// The fuzzer cannot guess a checksum, so each input is tried as the record itself, too.
		r, err := decodeRecord(data)
		if err != nil {
			return
		}
		if again, err := (&Journal{}).encode(r); err == nil {
			if back, err := decodeRecord(again); err != nil || !sameRecord(back, r) {
				t.Errorf("%+v became %+v, %v", r, back, err)
			}
		}
	})
}
