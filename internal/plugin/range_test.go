package plugin

import (
	"errors"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// A range is read again if there were no profiles.
func TestRangeUnconfigured(t *testing.T) {
	var profilesErr error
	r, err := New(Options{BinDirs: []string{t.TempDir()}, LockFile: "lock", Profiles: func() (profile.Set, error) {
		set, err := profile.Load()
		return set, errors.Join(err, profilesErr)
	}})
	check.Must(t, err)
	profilesErr = errors.New("unreadable")
	n := networkOf("pods", `{"ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}`)
	outside := addrs("10.2.0.1")
	if got := r.Range(n, outside); got != call.RangeUnconfigured {
		t.Errorf("without profiles: got %q", got)
	}
	profilesErr = nil
	if got := r.Range(n, outside); got != call.RangeOutside {
		t.Errorf("with profiles again: got %q", got)
	}
}
