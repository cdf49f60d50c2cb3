package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata/versions")

// versionsMachine is the machine ID in the journals of testdata/versions.
const versionsMachine = "0123456789abcdef0123456789abcdef"

// versionsRecords are the records that each build wrote into testdata/versions.
func versionsRecords() []string {
	return []string{
		"default/web-0 cooldown [10.15.0.77 fd00:15::5] claims [] as cilium-agent-default-web-0-53cf799ad94b53ea",
		"default/web-1 releasing [10.15.0.88 fd00:15::6] claims [] as cilium-agent-default-web-1-1467a26837bad2be",
		"health held [10.15.0.3 fd00:15::3] claims [ipv4] as cilium-agent-health-262317637f52a89c",
		"ingress held [10.15.0.4 fd00:15::4] claims [ipv4 ipv6] until confirmed as cilium-agent-ingress-a2a1d49d29704f35",
		"remote/late tombstone [] claims [] as cilium-agent-remote-late-da2dbf8f3d9a4570",
		"remote/web-2 adding [] claims [] as cilium-agent-remote-web-2-6f93275223b36d40",
		"router held [10.15.0.2 fd00:15::2] claims [ipv4 ipv6] as cilium-agent-router-c7d801cac9daf027",
	}
}

// summary returns what a record of every version has in common.
func summary(r record.Record) string {
	confirm := ""
	if r.Expiration != nil {
		confirm = " until confirmed"
	}
	return fmt.Sprintf("%s %s %v claims %v%s as %s", r.Owner, r.State, r.Addrs(), r.Claims, confirm, r.ContainerID)
}

// versionDirs returns the directories of testdata/versions by name, VERSION-COMMIT.
func versionDirs(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("testdata/versions/[0-9]*-*")
	must(t, err)
	for n := 1; n <= version; n++ {
		if !slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(filepath.Base(dir), fmt.Sprintf("%d-", n)) }) {
			t.Errorf("testdata/versions has no journal of version %d", n)
		}
	}
	return dirs
}

// openVersion opens a copy of a journal of testdata/versions.
func openVersion(t *testing.T, from string) (*Journal, string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, attachmentsName), os.DirFS(filepath.Join(from, attachmentsName))))
	j, err := Open(dir, Options{MachineID: versionsMachine})
	must(t, err)
	t.Cleanup(func() { must(t, j.Close()) })
	return j, dir
}

//evidence:reference/versioning journals of every format are read
func TestVersions(t *testing.T) {
	for _, from := range versionDirs(t) {
		t.Run(filepath.Base(from), func(t *testing.T) {
			j, dir := openVersion(t, from)
			l := load(t, j)
			wantVersionsRecords(t, l)
			wantGolden(t, filepath.Join(from, "records.jsonl"), l.Records)
			// A record is written in the current version when it changes.
			for _, r := range l.Records {
				write(t, j, r)
				data, err := os.ReadFile(attachmentFile(dir, r.ContainerID+fileSuffix))
				must(t, err)
				if !bytes.HasPrefix(data, []byte(prefix)) {
					t.Errorf("%s was written as %.20s…; want the current version", r.ContainerID, data)
				}
			}
			if again := load(t, j); !reflect.DeepEqual(again, l) {
				t.Errorf("written and loaded again: %+v; want %+v", again, l)
			}
		})
	}
}

// wantVersionsRecords wants that nothing but the common records was loaded.
func wantVersionsRecords(t *testing.T, l Loaded) {
	t.Helper()
	var got []string
	for _, r := range l.Records {
		got = append(got, summary(r))
	}
	if want := versionsRecords(); !slices.Equal(got, want) || len(l.Problems)+len(l.FutureVersions) > 0 {
		t.Errorf("loaded %q, problems %+v, future versions %+v; want %q", got, l.Problems, l.FutureVersions, want)
	}
}

// wantGolden compares records with a golden file, which has one in each line.
func wantGolden(t *testing.T, path string, records []record.Record) {
	t.Helper()
	var got []byte
	for _, r := range records {
		line, err := json.Marshal(r)
		must(t, err)
		got = append(append(got, line...), '\n')
	}
	if *update {
		must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("the records are\n%s\nwant those of %s; after an intended change run this test with -update and read the difference", got, path)
	}
}

// The journals of the next version are imitated by its number: this build cannot know its form.
//
//evidence:reference/versioning an older program leaves records of a newer format alone
func TestVersionsDowngrade(t *testing.T) {
	for _, from := range versionDirs(t) {
		t.Run(filepath.Base(from), func(t *testing.T) {
			j, dir := openVersion(t, from)
			future := attachmentFile(dir, "cilium-agent-router-c7d801cac9daf027.json")
			data, err := os.ReadFile(future)
			must(t, err)
			_, rest, _ := bytes.Cut(data, []byte(`,`))
			data = slices.Concat(fmt.Appendf(nil, `{"version":%d,`, version+1), rest)
			must(t, os.WriteFile(future, data, 0o600))

			l := load(t, j)
			want := []FutureVersion{{
				File: filepath.Base(future), ContainerID: "cilium-agent-router-c7d801cac9daf027",
				Owner: "router", Pool: "default", Version: version + 1,
			}}
			if !slices.Equal(l.FutureVersions, want) || len(l.Problems) > 0 || len(l.Records) != len(versionsRecords())-1 {
				t.Errorf("future versions %+v, problems %+v, %d records; want %+v and all other records", l.FutureVersions, l.Problems, len(l.Records), want)
			}
			if err := j.Remove("cilium-agent-router-c7d801cac9daf027"); !errors.Is(err, ErrFutureVersion) {
				t.Errorf("Remove: %v; want %v", err, ErrFutureVersion)
			}
			if got, err := os.ReadFile(future); err != nil || !bytes.Equal(got, data) {
				t.Errorf("the file is now %q, %v; want it unchanged", got, err)
			}
		})
	}
}
