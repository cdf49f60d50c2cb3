package harness

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// PluginCall is one call as the scripted plugin received it.
type PluginCall struct {
	Verb string
	// Env is the plugin's whole environment.
	Env map[string]string
	// Stdin is the network configuration.
	Stdin json.RawMessage
}

// Calls returns every call, oldest first.
func (s Scripted) Calls(t testing.TB) []PluginCall {
	t.Helper()
	var calls []PluginCall
	for line := range strings.Lines(s.callLog(t)) {
		var call PluginCall
		Must(t, json.Unmarshal([]byte(line), &call))
		calls = append(calls, call)
	}
	return calls
}

// Verbs returns the verb of every call, oldest first.
func (s Scripted) Verbs(t testing.TB) []string {
	t.Helper()
	var verbs []string
	for _, call := range s.Calls(t) {
		verbs = append(verbs, call.Verb)
	}
	return verbs
}

// CallCount returns how often a verb was called.
func (s Scripted) CallCount(t testing.TB, verb string) int {
	t.Helper()
	return strings.Count(s.callLog(t), `{"verb":"`+verb+`"`)
}

// WaitCall waits until a verb has been called more often than before.
func (s Scripted) WaitCall(t testing.TB, verb string, before int) {
	t.Helper()
	Eventually(t, "a call of "+verb, func() error {
		if s.CallCount(t, verb) == before {
			return errors.New("the plugin was not called")
		}
		return nil
	})
}

// Received reports whether a text was in the environment or the configuration of any call.
func (s Scripted) Received(t testing.TB, text string) bool {
	t.Helper()
	return strings.Contains(s.callLog(t), text)
}

// callLog returns the plugin's log of calls, a JSON line each.
func (s Scripted) callLog(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "calls.log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}
