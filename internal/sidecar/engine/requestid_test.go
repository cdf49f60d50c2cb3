package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// logTo writes the log to a logger.
func logTo(log logrus.FieldLogger) setup { return func(_ *fakeNode, o *Options) { o.Log = log } }

func TestRequestID(t *testing.T) {
	run(t, "lines and calls of a request", func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		log.SetLevel(logrus.DebugLevel)
		f := newFixture(t, logTo(log), ipv4Only)
		f.allocate("router")
		f.clearStore()
		f.setStored("a-pod", "10.0.0.1")
		hook.Reset()
		var ids []string
		f.onCallCtx(func(ctx context.Context, _ string, _ call.Call) { ids = append(ids, logging.RequestID(ctx)) })
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
		if len(ids) != 5 { // CHECK, DEL, ADD, DEL, DEL
			t.Errorf("%d calls %q; want five", len(ids), ids)
		}
		for _, id := range ids {
			if id != "abc" {
				t.Errorf("a call has the request ID %q; want abc", id)
			}
		}
		lines := hook.AllEntries()
		if len(lines) != 3 { // lost, DEL failed, the client had left
			t.Errorf("%d log lines; want three", len(lines))
		}
		for _, line := range lines {
			if got := line.Data["requestID"]; got != "abc" {
				t.Errorf("line %q has the request ID %v; want abc", line.Message, got)
			}
		}
	})
	run(t, "background work has none", func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		f := newFixture(t, logTo(log))
		f.allocate("router")
		f.clearStore()
		f.restart(logTo(log))
		lines := hook.AllEntries()
		if len(lines) == 0 {
			t.Fatal("no log lines; want the lines of the reacquisition")
		}
		for _, line := range lines {
			if got, ok := line.Data["requestID"]; ok {
				t.Errorf("line %q has the request ID %v; want none", line.Message, got)
			}
		}
	})
	run(t, "unread response", func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		f := newFixture(t, logTo(log))
		a := f.allocate("")
		f.Abandon(logging.WithRequestID(context.Background(), "abc"), a.Pool, a.Owner)
		if got := hook.LastEntry().Data["requestID"]; got != "abc" {
			t.Errorf("the line has the request ID %v; want abc", got)
		}
	})
}
