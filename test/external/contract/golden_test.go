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

// goldenEnv, if set, causes the golden files to be written before they are compared.
const goldenEnv = "UPDATE_GOLDEN"

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	// options matches the options of serve, whose defaults depend on the machine.
	options = regexp.MustCompile(`(?s)(\n +"options": \[).*?\n +\]`)
	hashes  = regexp.MustCompile(`(cilium-agent-[a-z0-9-]*)[0-9a-f]{16}\b`)
	inodes  = regexp.MustCompile(`device \d+:\d+, inode \d+`)
)

// compareBody compares the body of a response with testdata/<name>.json.
func compareBody(t *testing.T, n *harness.Node, name string, body []byte) {
	t.Helper()
	compareGolden(t, filepath.Join("testdata", name+".json"), normalize(t, n, body))
}

// compareGolden compares a text with a file.
func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv(goldenEnv) != "" {
		harness.Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; create it with %s=1 go test ./...", err, goldenEnv)
	}
	if got != string(want) {
		t.Errorf("not the content of %s; got:\n%s\nwant:\n%s", file, got, want)
	}
}

// normalize indents a body and replaces values that differ between runs with names.
func normalize(t *testing.T, n *harness.Node, body []byte) string {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "", "  "); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	s := replaceNode(n, strings.TrimSpace(indented.String())+"\n")
	s = options.ReplaceAllString(s, `${1} "OPTIONS" ]`)
	s = uuids.ReplaceAllString(s, "UUID")
	s = hashes.ReplaceAllString(s, "${1}HASH")
	s = inodes.ReplaceAllString(s, "DEVICE AND INODE")
	return times.ReplaceAllString(s, "TIME")
}

// replaceNode replaces the name and the directory of a node.
func replaceNode(n *harness.Node, s string) string {
	return strings.NewReplacer(n.Dir, "DIR", n.Name, "NODE").Replace(s)
}
