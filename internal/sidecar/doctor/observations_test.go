package doctor

import (
	"errors"
	"slices"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Without a sidecar, the stores are those of the pools of a start, found by the facts of
// their profiles.
func TestPoolStatuses(t *testing.T) {
	known := pool{
		name:    "default",
		network: call.Network{Name: "pods"},
		plugin:  plugin.Inspection{Plugin: "host-local", Profile: profile.Profile{Type: "host-local", StateDirKey: "dataDir"}},
	}
	unread := pool{confErr: errors.New("none")}
	o := &Observations{pools: []pool{known, unread}}
	got := o.poolStatuses()
	if len(got) != 1 || got[0].Network != "pods" || got[0].Plugin != "host-local" || profileFact(got[0], "stateDirKey") != "dataDir" {
		t.Errorf("got %+v; want the known pool with its facts", got)
	}
	if got := new(Observations).poolStatuses(); got != nil {
		t.Errorf("without pools: %+v", got)
	}
}

func TestEachStore(t *testing.T) {
	o := &Observations{
		pools:  []pool{{name: "unread", confErr: errors.New("none")}, {name: "read"}},
		stores: []store{{pool: "unread", network: "a"}, {pool: "read", network: "b"}, {pool: "without network"}, {pool: "served", network: "c"}},
	}
	var got []string
	eachStore(func(_ *Observations, s store, _ *report) { got = append(got, s.pool) })(o, &report{})
	if want := []string{"read", "served"}; !slices.Equal(got, want) {
		t.Errorf("got the stores of %q; want %q", got, want)
	}
}
