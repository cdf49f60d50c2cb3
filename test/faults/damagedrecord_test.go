package faults

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// recordFault damages the file of a record, which the next start quarantines for a reason.
type recordFault struct {
	damage func(file string) error
	reason string
}

//evidence:design/reliability Damaged records
//evidence:operate/security a damaged record, or one of another machine
func TestDamagedRecord(t *testing.T) {
	eachCase(t, damagedRecords, map[string]recordFault{
		"torn":                    {rewrite(truncate), "not an envelope"},
		"empty":                   {rewrite(func([]byte) []byte { return nil }), "empty"},
		"bit-flipped":             {rewrite(flipBit), "checksum"},
		"of another machine":      {ofAnotherMachine, "another machine"},
		"replaced by a directory": {replaceByFullDir, "not a regular file"},
		"replaced by a symlink":   {replaceByLink, "not a regular file"},
		"wrong file name":         {rename, "name does not match"},
		"zeros":                   {rewrite(func(data []byte) []byte { return make([]byte, len(data)) }), "not an envelope"},
		"version 0":               {rewrite(version("0")), "version 0; expected"},
		"without a checksum":      {rewrite(func(data []byte) []byte { return sumOf.ReplaceAll(data, []byte(`"sha256":""`)) }), "damaged"},
	}, func(t *testing.T, _ *stats, f recordFault) {
		n, router, health := stoppedNode(t)
		check.Must(t, f.damage(recordOf(n, "router")))
		n.ResetHistory() // the addresses of the router are unknown now

		s := n.Start(t)
		wantQuarantined(t, s, f.reason)
		wantHeld(t, s, "health", health)
		// The addresses of the damaged record are allocated to no other owner.
		wantNotGiven(t, s, "ingress", router)
		s.AllocateFor(t, "router")
		s.WaitConsistent(t)
	})
}

// The client has no response to its release, and the record is held as before.
//
//evidence:design/reliability a write that a power loss has interrupted
func TestInterruptedWrite(t *testing.T) {
	st := oneCase(t, damagedRecords)
	f := newFixture(t, scenario{flags: []string{"--enable-ipv6=false"}})
	f.start()
	held := f.sidecar.AllocateFor(t, "router")
	f.setPlan(failpoint.Plan{Point: failpoint.WriteWritten, Visit: 1})
	if a, err := f.sidecar.Try(http.MethodDelete, "/v1/ipam/"+held[0]); err == nil {
		t.Fatalf("got the response %s; want the sidecar killed before it", a)
	}
	f.sidecar.Wait(t)
	st.kills.Add(1)
	check.Must(t, rewrite(func(data []byte) []byte {
		at := bytes.Index(data, []byte(`"state":"releasing"`))
		clear(data[at : at+512])
		return data
	})(recordOf(f.node, "router")))
	f.node.Reboot(t)
	f.clearPlan()

	s := f.node.Start(t, "--enable-ipv6=false")
	wantQuarantined(t, s, "")
	wantHeld(t, s, "router", held)
	s.Release(t, held[0])
	s.WaitConsistent(t)
}

//evidence:design/reliability a record of a newer version
func TestNewerRecord(t *testing.T) {
	oneCase(t, damagedRecords)
	n := nodeWith(t)
	s := n.Start(t)
	held := s.AllocateFor(t, "router")
	file := recordOf(n, "router")
	s.Stop(t)
	present, err := os.ReadFile(file)
	check.Must(t, err)
	check.Must(t, rewrite(version("99"))(file))
	newer, err := os.ReadFile(file)
	check.Must(t, err)

	s = n.Launch(t)
	s.WaitReady(t)
	s.TryAllocate(t, harness.Request{Owner: "router"}).WantError(t, http.StatusBadGateway, "version 99")
	s.TryRestore(t, held[0], "router").WantError(t, http.StatusInternalServerError, "version 99")
	wantNotGiven(t, s, "health", held)
	wantQuarantined(t, s, "version 99")
	out := n.Command(t, "release", "--all", "--yes")
	if name := filepath.Base(file); out.ExitCode != 1 || !strings.Contains(out.Stderr, name+`: owner "router" in pool "default": its record has version 99`) {
		t.Errorf("release --all ended with status %d: %s; want 1 and a line about %s", out.ExitCode, out.Stderr, name)
	}
	s.Stop(t)
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, newer) {
		t.Errorf("the record was changed: %q, %v", now, err)
	}

	// The newer program would find it as it was.
	check.Must(t, os.WriteFile(file, present, 0o600))
	s = n.Start(t)
	wantHeld(t, s, "router", held)
}

//evidence:design/reliability a link or a directory planted at the path of a new record
func TestRecordPathOccupied(t *testing.T) {
	oneCase(t, damagedRecords)
	n := nodeWith(t)
	s := n.Start(t)
	outside := filepath.Join(n.Dir, "outside")
	check.Must(t, os.WriteFile(outside, []byte("content"), 0o600))
	check.Must(t, os.Symlink(outside, recordOf(n, "router")))
	health := recordOf(n, "health")
	check.Must(t, os.MkdirAll(filepath.Join(health, "full"), 0o700))

	s.AllocateFor(t, "router")
	s.TryAllocate(t, harness.Request{Owner: "health"}).WantError(t, http.StatusBadGateway, "the journal could not be written")
	s.AllocateFor(t, "ingress")
	if data, err := os.ReadFile(outside); err != nil || string(data) != "content" {
		t.Errorf("the target of the symlink was changed to %q, %v", data, err)
	}
	if len(n.Leases(t)) != 4 {
		t.Errorf("the plugin holds %v; want no lease of the refused owner", n.Leases(t))
	}

	check.Must(t, os.RemoveAll(health))
	s.AllocateFor(t, "health")
	s.WaitConsistent(t)
}

// rewrite returns a function that changes the content of a file.
func rewrite(change func([]byte) []byte) func(string) error {
	return func(file string) error {
		data, err := os.ReadFile(file)
		return errors.Join(err, os.WriteFile(file, change(data), 0o600))
	}
}

// truncate returns a part of the envelope.
func truncate(data []byte) []byte { return data[:200] }

// flipBit flips a bit of the address in the record.
func flipBit(data []byte) []byte {
	data[bytes.Index(data, []byte("10.15.0."))+len("10.15.0.")] ^= 1
	return data
}

var (
	sumOf     = regexp.MustCompile(`"sha256":"[^"]*"`)
	versionOf = regexp.MustCompile(`^{"version":\d+`)
)

// ofAnotherMachine writes the record with another machine ID.
func ofAnotherMachine(file string) error {
	j, err := journal.Open(filepath.Dir(filepath.Dir(file)), journal.Options{})
	if err != nil {
		return err
	}
	loaded, err := j.Load()
	for _, r := range loaded.Records {
		if r.ContainerID+".json" == filepath.Base(file) {
			r.MachineID = "another"
			err = errors.Join(err, j.Write(r))
		}
	}
	return errors.Join(err, j.Close())
}

func version(v string) func([]byte) []byte {
	return func(data []byte) []byte { return versionOf.ReplaceAll(data, []byte(`{"version":`+v)) }
}

func replaceByFullDir(file string) error {
	return errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "full"), 0o700))
}

// replaceByLink replaces the record by a symlink to a copy.
func replaceByLink(file string) error {
	outside := filepath.Join(filepath.Dir(file), "../../copy.json")
	return errors.Join(os.Rename(file, outside), os.Symlink(outside, file))
}

func rename(file string) error {
	return os.Rename(file, filepath.Join(filepath.Dir(file), "another-one.json"))
}
