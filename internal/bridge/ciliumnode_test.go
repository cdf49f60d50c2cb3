package bridge

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
)

// The fields of the CiliumNode take precedence over the flags.
func TestOwnSettings(t *testing.T) {
	flags := planner.Settings{MinAllocate: 8, PreAllocate: 9, MaxAllocate: 50, MaxAboveWatermark: 1, ReleaseExcess: true}
	n := &ciliumnode.Node{}
	if got := n.Settings(flags); got != flags {
		t.Errorf("without fields: got %+v", got)
	}
	flags.MaxPods = 110
	if got := n.Settings(flags); got.MaxPods != 110 || got.MaxAboveWatermark != 0 {
		t.Errorf("in a range of the node's own: got %+v", got)
	}
	own := &n.Spec.IPAM
	own.MinAllocate, own.PreAllocate, own.MaxAllocate, own.MaxAboveWatermark = 20, 16, 7, 5
	want := planner.Settings{MinAllocate: 20, PreAllocate: 16, MaxAllocate: 7, MaxAboveWatermark: 5, ReleaseExcess: true}
	if got := n.Settings(flags); got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
}
