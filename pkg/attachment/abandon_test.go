package attachment

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

func TestAnAttachmentWhoseClientGotNoResponseIsReleased(t *testing.T) {
	nothing := func(s scene) {
		s.Helper()
		if s.held() != 0 || len(s.List()) != 0 || len(s.disk) != 0 {
			s.Errorf("the plugin holds %d, the list %+v, the disk %v; want nothing", s.held(), s.List(), s.disk)
		}
	}
	written := func(s scene, state record.State) (times int) {
		s.mu()
		defer s.fakeNode.mu.Unlock()
		for _, call := range s.calls {
			if call == "write "+string(state) {
				times++
			}
		}
		return times
	}
	delayed := func(o *Options) { o.ReleaseDelay = time.Hour }
	play(t, "in the background, without the release delay", nil, func(s scene) {
		a := s.allocate("")
		s.Abandon(a.Pool, a.Owner)
		if n := written(s, record.Releasing); n != 1 {
			s.Errorf("at its return the record was written as releasing %d times; want once", n)
		}
		synctest.Wait()
		nothing(s)
	}, delayed)
	play(t, "when the DEL works, if it fails at first", nil, func(s scene) {
		a := s.allocate("")
		s.failing(on("DEL", 1, refused))
		s.Abandon(a.Pool, a.Owner)
		time.Sleep(time.Minute)
		synctest.Wait()
		nothing(s)
	}, delayed)
	play(t, "when the journal can be written, if it cannot at first", nil, func(s scene) {
		a := s.allocate("")
		s.failing(on("write releasing", 1, diskBefore))
		s.Abandon(a.Pool, a.Owner)
		time.Sleep(time.Minute)
		synctest.Wait()
		nothing(s)
	}, delayed)
	play(t, "when the journal can be written, if its client left before the end", func(w *fakeNode) { w.gate = make(chan struct{}) }, func(s scene) {
		ctx, hangUp := context.WithCancel(context.Background())
		go s.Allocate(ctx, AllocateRequest{}) //nolint:errcheck // its client is gone
		synctest.Wait()
		hangUp()
		s.failing(on("write releasing", 1, diskBefore))
		s.gate <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		nothing(s)
	}, delayed)
	play(t, "by the next start, after a stop", nil, func(s scene) {
		a := s.allocate("")
		stop(s.T, s.Engine)
		s.Abandon(a.Pool, a.Owner)
		if n := written(s, record.Releasing); n != 1 || s.held() == 0 {
			s.Errorf("the record was written as releasing %d times, the plugin holds %d; want that once and no DEL", n, s.held())
		}
		s.Engine = s.start(s.T)
		synctest.Wait()
		nothing(s)
	}, delayed)
	play(t, "once, and no other is", nil, func(s scene) {
		a := s.allocate("")
		s.allocate("router")
		s.Abandon(defaults.Pool, "anonymous/unknown")
		s.Abandon(a.Pool, a.Owner)
		s.Abandon(a.Pool, a.Owner)
		synctest.Wait()
		s.Abandon(a.Pool, a.Owner)
		if l := s.List(); len(l) != 1 || l[0].Owner != "router" || s.held() != 1 {
			s.Errorf("the plugin holds %d, the list %+v; want the router's alone", s.held(), l)
		}
	})
}
