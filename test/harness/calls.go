package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// PluginCall is one call as the scripted plugin saw it.
type PluginCall struct {
	Verb string
	// Env is the plugin's whole environment.
	Env map[string]string
	// Stdin is the network configuration.
	Stdin json.RawMessage
}

// Log returns every call, oldest first.
func (s Scripted) Log(t testing.TB) []PluginCall {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "calls.log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var calls []PluginCall
	for line := range strings.Lines(string(data)) {
		var call PluginCall
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	return calls
}

// FinishLate does the work of the last call of a verb, as a daemon behind the
// plugin does that has got its question and does not know that nobody waits.
func (s Scripted) FinishLate(t testing.TB, verb string) {
	t.Helper()
	var last PluginCall
	for _, call := range s.Log(t) {
		if call.Verb == verb {
			last = call
		}
	}
	daemon := exec.Command(strings.TrimSuffix(s.dir, ".d"))
	daemon.Stdin = bytes.NewReader(last.Stdin)
	for name, value := range last.Env {
		daemon.Env = append(daemon.Env, name+"="+value)
	}
	if out, err := daemon.CombinedOutput(); err != nil {
		t.Fatalf("the late %s: %v\n%s", verb, err, out)
	}
}
