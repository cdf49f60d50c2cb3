package contract

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// goldenEnv writes the golden files instead of comparing with them.
const goldenEnv = "UPDATE_GOLDEN"

var (
	uuids  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	hashes = regexp.MustCompile(`(cilium-agent-[a-z0-9-]*)[0-9a-f]{16}\b`)
)

// matchesGolden compares the body of an answer with testdata/<name>.json.
func matchesGolden(t *testing.T, n *harness.Node, name string, body []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".json")
	got := normalised(t, n, body)
	if os.Getenv(goldenEnv) != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; make it with %s=1 go test ./...", err, goldenEnv)
	}
	if got != string(want) {
		t.Errorf("the body differs from %s; got:\n%s\nwant:\n%s", file, got, want)
	}
}

// normalised indents a body and gives names to what differs from run to run.
func normalised(t *testing.T, n *harness.Node, body []byte) string {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "", "  "); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	s := strings.TrimSpace(indented.String()) + "\n"
	s = strings.NewReplacer(n.Dir, "DIR", n.Name, "NODE").Replace(s)
	s = uuids.ReplaceAllString(s, "UUID")
	s = hashes.ReplaceAllString(s, "${1}HASH")
	return times.ReplaceAllString(s, "TIME")
}
