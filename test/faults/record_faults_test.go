package faults

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// recordFaults are what may be found at start in the place of a record, by what
// is done to its file, and why it is put aside then.
func recordFaults() map[string]struct {
	damage func(t *testing.T, file string)
	says   string
} {
	type fault = struct {
		damage func(t *testing.T, file string)
		says   string
	}
	return map[string]fault{
		"torn":                         {change(tear), "not an envelope"},
		"empty":                        {change(func([]byte) []byte { return nil }), "empty"},
		"bit-flipped":                  {change(flip), "checksum"},
		"of another machine":           {change(ofAnotherMachine), "another machine"},
		"a folder in its place":        {putFolder, "not a regular file"},
		"a symbolic link in its place": {putLink, "not a regular file"},
		"under a wrong name":           {rename, "name does not match"},
		"zeros":                        {change(func(data []byte) []byte { return make([]byte, len(data)) }), "not an envelope"},
		"of no version":                {change(version("0")), "version 0"},
		"without a checksum":           {change(func([]byte) []byte { return []byte(`{"version":1,"sha256":"","record":{}}`) }), "damaged"},
	}
}

func TestARecordThatCannotBeUsedIsPutAsideAndItsOwnerServedAnew(t *testing.T) {
	t.Parallel()
	count := newTally(t, damagedRecords)
	for name, f := range recordFaults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			n := nodeWith(t)
			s := n.Start(t)
			router := s.AllocateFor(t, "router")
			health := s.AllocateFor(t, "health")
			file := filepath.Join(attachments(n), s.Attachment(t, "router").ContainerID+".json")
			s.Stop(t)
			f.damage(t, file)
			n.ResetHistory() // what the router was told is known to nobody now

			s = n.Start(t)
			if got := s.Health(t).DelegatedIPAM.Quarantined; len(got) != 1 || !strings.Contains(got[0].Reason, f.says) {
				t.Errorf("health shows the quarantined records %+v; want one with %q", got, f.says)
			}
			wantHeld(t, s, "health", health)
			// Nobody knows whose those addresses are. They are nobody else's.
			for _, ip := range s.AllocateFor(t, "ingress") {
				if slices.Contains(router, ip) {
					t.Errorf("%s was the router's and is given to ingress", ip)
				}
			}
			s.AllocateFor(t, "router")
			s.WaitConsistent(t)
		})
	}
}

func TestARecordOfANewerVersionIsLeftAloneAndItsOwnerRefused(t *testing.T) {
	t.Parallel()
	newTally(t, damagedRecords).watch(t)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	file := filepath.Join(attachments(n), s.Attachment(t, "router").ContainerID+".json")
	s.Stop(t)
	change(version("2"))(t, file)
	newer, err := os.ReadFile(file)
	must(t, err)

	s = n.Launch(t)
	s.WaitReady(t)
	wantAnswer(t, s.TryAllocate(t, harness.Request{Owner: "router"}), http.StatusBadGateway, "version 2")
	wantAnswer(t, s.TryRestore(t, held[0], "router"), http.StatusInternalServerError, "version 2")
	for _, ip := range s.AllocateFor(t, "health") {
		if slices.Contains(held, ip) {
			t.Errorf("%s is the router's and is given to health", ip)
		}
	}
	s.Stop(t)
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, newer) {
		t.Errorf("the record was changed: %q, %v", now, err)
	}

	// The newer program writes what the older one reads.
	change(version("1"))(t, file)
	s = n.Start(t)
	wantHeld(t, s, "router", held)
}

func TestWhatIsPlantedInTheWayOfARecordIsNeverFollowed(t *testing.T) {
	t.Parallel()
	newTally(t, damagedRecords).watch(t)
	n := nodeWith(t)
	s := n.Start(t)
	record := func(owner string) string { return filepath.Join(attachments(n), idOf(t, n, owner)+".json") }
	outside := filepath.Join(n.Dir, "outside")
	must(t, os.WriteFile(outside, []byte("mine"), 0o600))
	must(t, os.Symlink(outside, record("router")))
	must(t, os.MkdirAll(filepath.Join(record("health"), "full"), 0o700))

	s.AllocateFor(t, "router")
	wantAnswer(t, s.TryAllocate(t, harness.Request{Owner: "health"}), http.StatusBadGateway, "the journal could not be written")
	s.AllocateFor(t, "ingress")
	if data, err := os.ReadFile(outside); err != nil || string(data) != "mine" {
		t.Errorf("the file that a planted link names is %q now, %v", data, err)
	}
	if len(n.Leases(t)) != 4 {
		t.Errorf("the plugin holds %v; want nothing of the owner that was refused", n.Leases(t))
	}

	must(t, os.RemoveAll(record("health")))
	s.AllocateFor(t, "health")
	s.WaitConsistent(t)
}

// change rewrites a file.
func change(how func([]byte) []byte) func(*testing.T, string) {
	return func(t *testing.T, file string) {
		t.Helper()
		data, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, how(data), 0o600))
	}
}

// tear leaves the first half of what is in a file besides its spaces.
func tear(data []byte) []byte { return data[:len(bytes.TrimRight(data, " \n"))/2] }

// flip flips one bit of the address that the record holds.
func flip(data []byte) []byte {
	data[bytes.Index(data, []byte("10.15.0."))+len("10.15.0.")] ^= 1
	return data
}

var (
	machineOf = regexp.MustCompile(`"machineID":"[^"]*"`)
	versionOf = regexp.MustCompile(`^{"version":\d+`)
	sealed    = regexp.MustCompile(`"record":(.*)} *\n$`)
)

// ofAnotherMachine makes a whole record as another machine would write it.
func ofAnotherMachine(data []byte) []byte {
	raw := machineOf.ReplaceAll(sealed.FindSubmatch(data)[1], []byte(`"machineID":"another"`))
	sum := sha256.Sum256(raw)
	return fmt.Appendf(nil, "{\"version\":1,\"sha256\":%q,\"record\":%s}\n", hex.EncodeToString(sum[:]), raw)
}

func version(v string) func([]byte) []byte {
	return func(data []byte) []byte { return versionOf.ReplaceAll(data, []byte(`{"version":`+v)) }
}

// putFolder puts a folder with something in it in the place of a file.
func putFolder(t *testing.T, file string) {
	t.Helper()
	must(t, os.Remove(file))
	must(t, os.MkdirAll(filepath.Join(file, "full"), 0o700))
}

// putLink puts a link to a copy of the record in its place.
func putLink(t *testing.T, file string) {
	t.Helper()
	outside := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(file))), "copy.json")
	must(t, os.Rename(file, outside))
	must(t, os.Symlink(outside, file))
}

func rename(t *testing.T, file string) {
	t.Helper()
	must(t, os.Rename(file, filepath.Join(filepath.Dir(file), "another-one.json")))
}
