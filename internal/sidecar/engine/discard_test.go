package engine

import (
	"context"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
)

// discard discards the router, and wants the commands of the leftovers.
func (f *fixture) discard(commands ...string) {
	f.t.Helper()
	_, left, err := f.Discard(context.Background(), "", "router")
	if err != nil || len(left) != len(commands) {
		f.t.Fatalf("got %+v, %v; want the commands %q", left, err, commands)
	}
	for i, want := range commands {
		if left[i].Command != want || left[i].Network != "net" || left[i].Plugin != "host-local" {
			f.t.Errorf("got %+v; want the command %q", left[i], want)
		}
	}
}

func TestDiscard(t *testing.T) {
	const del = "DEL " + routerID
	run(t, "the plugin refuses everything", with(needsPod), func(f *fixture) {
		f.wantError(f.tryAllocate("router"), protocol.Failed, "no pod")
		f.discard(del)
		f.wantNoAttachment()
		f.wantRecords(0)
		if got := f.logged.LastEntry(); got == nil || got.Level != logrus.WarnLevel || got.Data["network"] != "net" || got.Data["plugin"] != "host-local" {
			f.t.Errorf("got the log line %+v; want a warning with network and plugin", got)
		}
		f.restart(namesPod)
		f.wantNoAttachment()
	})
	run(t, "the plugin accepts the DEL", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.discard()
		f.wantGone()
	})
	run(t, "a DEL may act late", with(unknownPlugin), func(f *fixture) {
		f.allocate("router")
		f.inject(always(timeoutLate, "DEL"))
		if _, left, err := f.Discard(context.Background(), "", "router"); err != nil || len(left) != 1 {
			f.t.Fatalf("got %+v, %v; want one leftover", left, err)
		}
		f.wantNoAttachment()
		f.inject(nil)
		f.allocate("router")
		f.wantGeneration("router", 1)
		f.sleep(time.Hour)
		f.wantStoreAgrees()
	})
	run(t, "the record cannot be removed", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.inject(each(map[string]fault{"DEL": refused, "remove": writeFailed}))
		_, left, err := f.Discard(context.Background(), "", "router")
		f.wantError(err, protocol.Failed, "could not be removed")
		if len(left) > 0 || f.get("router").Owner == "" {
			f.t.Errorf("got %+v and the attachment %+v; want it kept", left, f.get("router"))
		}
	})
	run(t, "none", nil, func(f *fixture) {
		for _, pool := range []string{"", "other"} {
			_, _, err := f.Discard(context.Background(), pool, "router")
			f.wantError(err, protocol.NotFound, "router", "no attachment")
		}
	})
}
