package plugin

import (
	"errors"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestRange(t *testing.T) {
	var profilesErr error
	r, err := New(Options{BinDirs: []string{t.TempDir()}, LockFile: "lock", Profiles: func() (profile.Set, error) {
		set, err := profile.Load()
		return set, errors.Join(err, profilesErr)
	}})
	check.Must(t, err)
	const both = `{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24","rangeEnd":"10.1.0.9"},{"subnet":"10.2.0.0/24"}],[{"subnet":"fd00::/64"}]]}`
	for name, tt := range map[string]struct {
		ipam  string
		addrs []string
		want  call.Range
	}{
		"inside":              {both, []string{"10.1.0.9", "fd00::5"}, ""},
		"second range":        {both, []string{"10.2.0.200"}, ""},
		"another subnet":      {both, []string{"10.3.0.1"}, call.RangeOutside},
		"behind the end":      {both, []string{"10.1.0.10"}, call.RangeOutside},
		"one of both":         {both, []string{"10.1.0.1", "fd01::1"}, call.RangeOutside},
		"no address":          {both, nil, ""},
		"old form":            {`{"type":"host-local","subnet":"10.1.0.0/24"}`, []string{"10.2.0.1"}, call.RangeOutside},
		"another plugin":      {`{"type":"whereabouts","range":"10.1.0.0/24"}`, []string{"10.2.0.1"}, ""},
		"unknown plugin":      {`{"type":"mine","ranges":[[{"subnet":"10.1.0.0/24"}]]}`, []string{"10.2.0.1"}, ""},
		"invalid ranges":      {`{"type":"host-local","ranges":[[{"subnet":"10.1.0.1/24"}]]}`, []string{"10.2.0.1"}, ""},
		"no ranges":           {`{"type":"host-local"}`, []string{"10.2.0.1"}, ""},
		"no type":             {`{}`, []string{"10.2.0.1"}, ""},
		"not a configuration": {`[`, []string{"10.2.0.1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := networkOf("pods", `{"ipam":`+tt.ipam+`}`) // one network that changes
			for range 2 {
				if got := r.Range(n, addrs(tt.addrs...)); got != tt.want {
					t.Errorf("got %q; want %q", got, tt.want)
				}
			}
		})
	}
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
