package agent

import (
	"syscall"
	"testing"
	"time"
)

// Without this, a watch that sees nothing would look like a bridge that does
// nothing wrong. It also shows what an agent does at its start with an endpoint
// whose address is not in the pool: it drops it.
func TestMonitorDetectsLoss(t *testing.T) {
	l := newLab(t, ipv4Only(), shortRest)
	l.sidecar.mustStart(t)
	l.bridge.mustStart(t)
	l.mustServe(t, l.agent.mustStart(t))
	book := newLedger()
	kept, lost := &pod{name: "kept"}, &pod{name: "lost"}
	for _, p := range []*pod{kept, lost} {
		must(t, l.addPod(t.Context(), p))
		book.began(p)
	}
	w := &watch{lab: l, ledger: book, grace: 15 * time.Second}
	mustEventually(t, "both pods to be there", time.Minute, func() error { return w.intact(t.Context(), book.now()) })

	mustEventually(t, "the books to agree", time.Minute, func() error { return l.settledWith(t, len(book.now())) })
	l.bridge.end(syscall.SIGKILL) // it would put the address back at once
	must(t, l.kube.unpublish(t.Context(), lost.ips[0]))
	b, err := l.books(t.Context())
	must(t, err)
	if b.usedIsPublished() == nil {
		t.Error("a used address was taken out of the pool, and the books do not show it")
	}
	l.agent.end(syscall.SIGKILL)
	w.life(t.Context(), l.agent.mustStart(t))
	if broken := book.broken(); len(broken) != 1 {
		t.Errorf("the agent lost one pod, and the watch saw %q", broken)
	}
	if err := w.intact(t.Context(), []running{{kept.name, kept.ips}}); err != nil {
		t.Errorf("the other pod: %v", err)
	}
	book.began(&pod{name: "other", ips: kept.ips})
	if broken := book.broken(); len(broken) != 2 {
		t.Errorf("an address was given to two pods, and the ledger saw %q", broken)
	}
}
