package harness

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// EditRecords edits every record of a stopped sidecar, such as its deadlines, and updates the
// checksums (docs/how-it-works.md, On disk).
func (n *Node) EditRecords(t testing.TB, edit func(record map[string]any)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.StateDir, "attachments", "cilium-agent-*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("records in %s: %q, %v; want one at least", n.StateDir, files, err)
	}
	for _, file := range files {
		if err := editRecord(file, edit); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func editRecord(file string, edit func(map[string]any)) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var envelope struct {
		Version json.Number     `json:"version"`
		Record  json.RawMessage `json:"record"`
	}
	if err := json.Unmarshal(data, &envelope); err != nil {
		return err
	}
	var record map[string]any
	numbers := json.NewDecoder(bytes.NewReader(envelope.Record))
	numbers.UseNumber()
	if err := numbers.Decode(&record); err != nil {
		return err
	}
	edit(record)
	raw, err := json.Marshal(record)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("{\"version\":%s,\"sha256\":\"%x\",\"record\":%s}\n", envelope.Version, sha256.Sum256(raw), raw)
	return os.WriteFile(file, []byte(text), 0o600)
}
