package plugin

import (
	"errors"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// Without profiles only ranges of host-local are compared, and read again later.
func TestRangeUnconfigured(t *testing.T) {
	var profilesErr error
	r, err := New(Options{BinDirs: []string{t.TempDir()}, LockFile: "lock", Profiles: func() (profile.Set, error) {
		set, err := profile.Load()
		return set, errors.Join(err, profilesErr)
	}})
	check.Must(t, err)
	profilesErr = errors.New("unreadable")
	for _, c := range []struct {
		plugin  string
		err     error
		outside call.Range
	}{
		{"host-local", profilesErr, call.RangeOutside},
		{"other", profilesErr, call.RangeUnconfigured},
		{"other", nil, ""},
		{"host-local", nil, call.RangeOutside},
	} {
		profilesErr = c.err
		n := networkOf(c.plugin, `{"ipam":{"type":"`+c.plugin+`","subnet":"10.9.0.0/24"}}`)
		check.Equal(t, c.plugin, r.Range(n, addrs("10.2.0.1")), c.outside)
	}
}
