package cli

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func heldRecord(owner string) attachment.Record {
	return attachment.Record{
		ContainerID: "id-" + filepath.Base(owner), Owner: owner, Pool: "default", State: attachment.Held, Network: "pods",
		Result:      call.Result{Addresses: []call.Address{{Prefix: netip.MustParsePrefix("10.1.0.7/24")}}},
		Claims:      []attachment.Family{attachment.IPv4},
		Invocations: []call.Invocation{{ContainerID: "id-" + owner, IfName: "eth0", Network: "pods", Plugin: "host-local", Config: []byte(`{}`)}},
	}
}

// tombstone returns the record of a DEL that may act for a time from now on.
func tombstone(owner string, rest time.Duration) attachment.Record {
	return attachment.Record{
		ContainerID: "id-" + owner, Owner: owner, Pool: "default", State: attachment.Tombstone,
		LateDel: attachment.LateDel{Until: time.Now().Add(rest), Seconds: int(max(rest, 0).Seconds())},
	}
}

// writeJournal makes the journal of a daemon that has stopped.
func writeJournal(t *testing.T, stateDir string, records ...attachment.Record) {
	t.Helper()
	dir, err := statedir.Lock(t.Context(), stateDir, statedir.Holder{}, nil)
	check.Must(t, err)
	j := journal.Open(dir, journal.Options{})
	for _, r := range records {
		check.Must(t, j.Write(r))
	}
	j.Close()
	check.Must(t, dir.Close())
}

func TestJournal(t *testing.T) {
	d, state := testDependencies(nil), filepath.Join(t.TempDir(), "state")
	flag := "--state-dir=" + state
	// A wrong directory must not look like an empty journal, nor its copy like a backup.
	empty, none := t.TempDir(), filepath.Join(t.TempDir(), "journal.db")
	for _, dir := range []string{state, empty} {
		d.exec(t, "journal", "list", "--state-dir="+dir).wants(t, cmdline.ExitFailed, "", filepath.Join(dir, "journal.db"), "expected --state-dir")
		d.exec(t, "journal", "backup", none, "--state-dir="+dir).wants(t, cmdline.ExitFailed, "", filepath.Join(dir, "journal.db"), "expected --state-dir")
	}
	check.Absent(t, none)
	d.exec(t, "journal", "delete", "router", "--yes", flag).wants(t, cmdline.ExitFailed, "", state, "no such file")
	writeJournal(t, state, heldRecord("router"), heldRecord("ingress"))
	d.exec(t, "journal", "list", flag).wants(t, cmdline.ExitOK,
		"OWNER     POOL      STATE   ADDRESSES   CONTAINER-ID   CHANGED\ningress   default   held    10.1.0.7    id-ingress     -\nrouter    default   held    10.1.0.7    id-router      -\n")
	var listed struct {
		Format  int
		Records []attachment.Record
		Damaged []struct{}
	}
	check.Must(t, json.Unmarshal([]byte(d.exec(t, "journal", "list", "-o=json", flag).stdout), &listed))
	check.True(t, listed.Format > 0 && len(listed.Records) == 2 && listed.Damaged != nil, "listed %+v", listed)

	copied := filepath.Join(t.TempDir(), "journal.db")
	d.exec(t, "journal", "backup", copied, flag).wants(t, cmdline.ExitOK, "copied 2 records of "+state+" to "+copied+"\n")
	d.exec(t, "journal", "backup", copied, flag).wants(t, cmdline.ExitFailed, "", copied, "exists")
	d.exec(t, "journal", "backup", filepath.Dir(copied)+"/", flag).wants(t, cmdline.ExitFailed, "", filepath.Dir(copied), "exists")

	d.exec(t, "journal", "delete", "router", flag).wants(t, cmdline.ExitUsage, "", "--yes")
	d.exec(t, "journal", "delete", "router", "--yes", "--pool=blue", flag).wants(t, cmdline.ExitFailed, "", `no record of owner "router" in pool "blue"`)
	lock, err := statedir.Lock(t.Context(), state, statedir.Holder{}, nil)
	check.Must(t, err)
	d.exec(t, "journal", "delete", "router", "--yes", flag).wants(t, cmdline.ExitFailed, "", "held by PID ", "stop the daemon")
	check.Must(t, lock.Close())
	d.exec(t, "journal", "delete", "router", "--yes", flag).wants(t, cmdline.ExitOK,
		"deleted router of pool default (held, container ID id-router): 10.1.0.7; the plugin may keep its addresses\n  container ID id-router, interface eth0, network pods, plugin host-local\n")
	_, all, err := journal.Read(state)
	check.True(t, err == nil && len(all.Records) == 1 && all.Records[0].Owner == "ingress", "left are %+v, %v", all.Records, err)
	_, all, err = journal.Read(filepath.Dir(copied))
	check.True(t, err == nil && len(all.Records) == 2, "the copy has %+v, %v", all.Records, err)

	data, err := os.ReadFile(copied)
	check.Must(t, err)
	check.Must(t, os.WriteFile(copied, []byte(strings.Replace(string(data), `"owner":"router"`, `"owner":"hacker"`, 1)), 0o600))
	d.exec(t, "journal", "list", "-o=json", "--state-dir="+filepath.Dir(copied)).wantsAnyOutput(t, cmdline.ExitFailed, `owner "router" of pool "default"`, "checksum")
	check.Must(t, os.WriteFile(copied, data[:5000], 0o600))
	for _, args := range [][]string{{"list"}, {"backup", copied + ".2"}} {
		d.exec(t, append([]string{"journal", "--state-dir=" + filepath.Dir(copied)}, args...)...).wantsAnyOutput(t, cmdline.ExitFailed, copied, "damaged")
	}
}

func TestUninstallInUse(t *testing.T) {
	file := func(name, content string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			check.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
			check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
	}
	written := func(r attachment.Record) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { writeJournal(t, dir, r) }
	}
	inState := func(state attachment.State, owner string) attachment.Record {
		r := heldRecord(owner)
		r.State, r.Claims = state, nil
		return r
	}
	damaged := func(t *testing.T, dir string) {
		writeJournal(t, dir, heldRecord("router"))
		path := filepath.Join(dir, "journal.db")
		data, err := os.ReadFile(path)
		check.Must(t, err)
		check.Must(t, os.WriteFile(path, []byte(strings.Replace(string(data), "10.1.0.7", "10.1.0.8", 1)), 0o600))
	}
	for name, tt := range map[string]struct {
		make      func(t *testing.T, dir string)
		words     []string
		discarded bool // by --discard-quarantine
	}{
		"held":                   {written(heldRecord("router")), []string{"1 attachments", "router", "held", "10.1.0.7", "release --all --yes"}, false},
		"releasing":              {written(inState(attachment.Releasing, "router")), []string{"router", "releasing"}, false},
		"container in cooldown":  {written(inState(attachment.Cooldown, "cni/c/eth0")), []string{"cni/c/eth0", "cooldown"}, false},
		"late DEL":               {written(tombstone("router", time.Hour)), []string{"the outcome of 1 DELs", "router", "again later"}, false},
		"damaged record":         {damaged, []string{"1 records and files are damaged", "router", "checksum", "--discard-quarantine"}, true},
		"damaged file":           {file("journal.db", "{"), []string{"journal.db: damaged", "--discard-quarantine"}, true},
		"quarantined before":     {file("quarantine/b", "{"), []string{"1 records and files are damaged", "quarantine/b"}, true},
		"DEL that cannot be now": {written(tombstone("router", -time.Second)), nil, true},
		"container of a runtime": {written(heldRecord("cni/c/eth0")), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			tt.make(t, dir)
			uninstall := []string{"uninstall", "--yes", "--state-dir=" + dir, "--socket-path=" + dir + ".sock"}
			if tt.words != nil {
				testDependencies(nil).exec(t, uninstall...).wantsAnyOutput(t, cmdline.ExitFailed, append(tt.words, dir)...)
				_, err := os.Stat(filepath.Join(dir, "lock"))
				check.NoError(t, err)
			}
			out := testDependencies(nil).exec(t, append(uninstall, "--discard-quarantine")...)
			if !tt.discarded {
				out.wantsAnyOutput(t, cmdline.ExitFailed, tt.words...)
				return
			}
			check.Equal(t, "exit status, "+out.stderr, out.code, cmdline.ExitOK)
			check.Absent(t, dir)
		})
	}
}
