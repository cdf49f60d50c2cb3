package attachment

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/logging"
)

// logTo writes the log to a logger.
func logTo(log logrus.FieldLogger) setup { return func(_ *fakeNode, o *Options) { o.Log = log } }

func TestRequestID(t *testing.T) {
	run(t, "lines and calls of a request", func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		log.SetLevel(logrus.DebugLevel)
		f := newFixture(t, logTo(log))
		f.allocate("router")
		f.clearStore()
		hook.Reset()
		var ids []string
		f.onCallCtx(func(ctx context.Context, _ string, _ call.Call) { ids = append(ids, logging.RequestID(ctx)) })
		ctx, cancel := context.WithCancel(logging.WithRequestID(context.Background(), "abc"))
		f.inject(func(step string) fault { // the DEL before the ADD fails, and the client leaves
			if step == "DEL" {
				cancel()
				return refused
			}
			return noFault
		})
		_, _ = f.Allocate(ctx, AllocateRequest{Owner: "router"})
		synctest.Wait()
		if len(ids) != 3 { // CHECK, DEL, ADD
			t.Errorf("%d calls %q; want three", len(ids), ids)
		}
		for _, id := range ids {
			if id != "abc" {
				t.Errorf("a call has the request ID %q; want abc", id)
			}
		}
		lines := hook.AllEntries()
		if len(lines) != 4 { // lost, DEL failed, reacquired, the client had left
			t.Errorf("%d log lines; want four", len(lines))
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
			t.Fatal("no log lines; want those of the reacquisition")
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
