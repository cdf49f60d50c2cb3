package harness

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
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
		check.Must(t, json.Unmarshal([]byte(line), &call))
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

// Holds returns the addresses that the plugin holds, in order.
func (s Scripted) Holds(t testing.TB) []string {
	t.Helper()
	names := s.fileNames(t, "store")
	slices.SortFunc(names, func(a, b string) int { return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b)) })
	return names
}

// Queued returns how many DELs wait for the daemon.
func (s Scripted) Queued(t testing.TB) int {
	t.Helper()
	return len(s.fileNames(t, "queue"))
}

// fileNames returns the names in a directory of the plugin; none if the directory is missing.
func (s Scripted) fileNames(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Leases returns the plugin's leases, for a plugin type that is keyed by container ID and
// interface (the default). Its store has no networks: every lease gets the named one.
func (s Scripted) Leases(network string) ([]oracle.Lease, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "store"))
	if err != nil {
		return nil, err
	}
	var leases []oracle.Lease
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(s.dir, "store", e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // freed since the directory was read
		}
		ip, errIP := netip.ParseAddr(e.Name())
		if err = errors.Join(err, errIP); err != nil {
			return nil, err
		}
		l := oracle.Lease{Network: network, IP: ip}
		l.ContainerID, l.Interface, _ = strings.Cut(string(data), "\n")
		leases = append(leases, l)
	}
	return leases, nil
}
