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
	uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	// options has those of serve, whose defaults differ from machine to machine.
	options = regexp.MustCompile(`(?s)(\n +"options": \[).*?\n +\]`)
	hashes  = regexp.MustCompile(`(cilium-agent-[a-z0-9-]*)[0-9a-f]{16}\b`)
)

// matchesGolden compares the body of an answer with testdata/<name>.json.
func matchesGolden(t *testing.T, n *harness.Node, name string, body []byte) {
	t.Helper()
	sameAsGolden(t, filepath.Join("testdata", name+".json"), normalised(t, n, body))
}

// sameAsGolden compares a text with a file.
func sameAsGolden(t *testing.T, file, got string) {
	t.Helper()
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
		t.Errorf("it differs from %s; got:\n%s\nwant:\n%s", file, got, want)
	}
}

// normalised indents a body and gives names to what differs from run to run.
func normalised(t *testing.T, n *harness.Node, body []byte) string {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "", "  "); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	s := named(n, strings.TrimSpace(indented.String())+"\n")
	s = options.ReplaceAllString(s, `${1} "OPTIONS" ]`)
	s = uuids.ReplaceAllString(s, "UUID")
	s = hashes.ReplaceAllString(s, "${1}HASH")
	return times.ReplaceAllString(s, "TIME")
}

// named gives names to a node and its folder.
func named(n *harness.Node, s string) string {
	return strings.NewReplacer(n.Dir, "DIR", n.Name, "NODE").Replace(s)
}
