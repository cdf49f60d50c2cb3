package check

import (
	"errors"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Without a sidecar, the stores are those of the pools of a start, found by the facts of
// their profiles.
func TestPoolStatuses(t *testing.T) {
	known := Pool{
		Name:    "default",
		Network: call.Network{Name: "pods"},
		Plugin:  plugin.Inspection{Plugin: "host-local", Profile: profile.Profile{Type: "host-local", StateDirKey: "dataDir"}},
	}
	unread := Pool{ConfErr: errors.New("none")}
	o := &Observations{Pools: []Pool{known, unread}}
	got := o.poolStatuses()
	if len(got) != 1 || got[0].Network != "pods" || got[0].Plugin != "host-local" || ProfileFact(got[0], "stateDirKey") != "dataDir" {
		t.Errorf("got %+v; want the known pool with its facts", got)
	}
	if got := new(Observations).poolStatuses(); got != nil {
		t.Errorf("without pools: %+v", got)
	}
}

func TestKnownStores(t *testing.T) {
	o := &Observations{
		Pools:  []Pool{{Name: "unread", ConfErr: errors.New("none")}, {Name: "read"}},
		Stores: []Store{{Pool: "unread", Network: "a"}, {Pool: "read", Network: "b"}, {Pool: "without network"}, {Pool: "served", Network: "c"}},
	}
	got := o.KnownStores()
	if len(got) != 2 || got[0].Pool != "read" || got[1].Pool != "served" {
		t.Errorf("got %+v; want the stores of the pools read and served", got)
	}
}
