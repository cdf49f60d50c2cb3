package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

func TestRequestID(t *testing.T) {
	run(t, "lines and calls of a request", with(ipv4Only), func(f *fixture) {
		f.allocate("router")
		f.clearStore()
		f.setStored("a-pod", "10.0.0.1")
		f.logged.Reset()
		var ids []string
		f.node.onCall = func(ctx context.Context, _ string, _ call.Call) { ids = append(ids, logging.RequestID(ctx)) }
		ctx, cancel := context.WithCancel(logging.WithRequestID(context.Background(), "abc"))
		del := nth(2, "DEL", refused)
		f.inject(func(step string) fault { // the second DEL before an ADD fails, and the client leaves
			injected := del(step)
			if injected != noFault {
				cancel()
			}
			return injected
		})
		_, _ = f.Allocate(ctx, AllocateRequest{Owner: "router"})
		synctest.Wait()
		for _, line := range f.logged.AllEntries() {
			ids = append(ids, fmt.Sprint(line.Data["requestID"]))
		}
		// CHECK, DEL, ADD, DEL, DEL; and the lines: lost, DEL failed, the client had left
		if want := slices.Repeat([]string{"abc"}, 5+3); !slices.Equal(ids, want) {
			f.t.Errorf("calls and lines have the request IDs %q; want %q", ids, want)
		}
	})
	run(t, "unread response", nil, func(f *fixture) {
		a := f.allocate("")
		f.Abandon(logging.WithRequestID(context.Background(), "abc"), a.Pool, a.Owner)
		if got := f.logged.LastEntry().Data["requestID"]; got != "abc" {
			f.t.Errorf("the line has the request ID %v; want abc", got)
		}
	})
}
