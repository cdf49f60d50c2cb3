package engine

import (
	"net/netip"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// An attachment that is being adopted has its addresses before it has a record.
func TestConflictWithoutRecord(t *testing.T) {
	addresses := []netip.Addr{addr("10.0.0.1")}
	adopting, asking := &entry{}, &entry{}
	held := &entry{State: protocol.State{Rec: &record.Record{State: record.Held}}}
	for name, c := range map[string]struct {
		have []*entry
		want *entry
	}{
		"one is adopting":           {[]*entry{adopting}, adopting},
		"adopting, and one holds":   {[]*entry{adopting, held}, held},
		"one holds, and adopting":   {[]*entry{held, adopting}, held},
		"only the one that asks":    {[]*entry{asking}, nil},
		"the asking one has it too": {[]*entry{asking, adopting}, adopting},
	} {
		t.Run(name, func(t *testing.T) {
			x := index{}
			for _, a := range c.have {
				x.add(a, "net", addresses)
			}
			if got, _ := x.conflict(asking, "net", addresses); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
