package delegate

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// observed keeps what it is told.
type observed struct {
	mu      sync.Mutex
	calls   []string
	running []int
}

func (o *observed) Called(verb, plugin string, outcome call.Outcome, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, strings.TrimSpace(fmt.Sprintf("%s %s %s", plugin, verb, outcome)))
	if took <= 0 {
		o.calls = append(o.calls, "in no time")
	}
}

func (o *observed) Running(change int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = append(o.running, change)
}

func TestTheObserverIsToldOfEachCallOnce(t *testing.T) {
	o := &observed{}
	b := newBench(t, func(opts *Options) { opts.Observer = o })
	c := b.call("id-1")
	for _, verb := range []string{call.VerbAdd, call.VerbCheck, call.VerbStatus, call.VerbDel} {
		b.must(verb, c)
	}
	b.script("ADD", `{"error":`+goodError+`}`)
	wantError(t, b.run(call.VerbAdd, c), call.Refused, "999")
	b.script("ADD", `{"result":{"cniVersion":"1.1.0"}}`)
	wantError(t, b.run(call.VerbAdd, c), call.Unknown, "no address")
	b.script("DEL", `{"killSelf":9}`)
	wantError(t, b.run(call.VerbDel, c), call.Unknown, "killed")
	c.Invocation.Binary = b.opts.LockFile
	wantError(t, b.run(call.VerbDel, c), call.NotStarted, "mode 0755")

	want := []string{
		"scripted VERSION", "scripted ADD", "scripted CHECK", "scripted STATUS", "scripted DEL",
		"scripted ADD refused", "scripted ADD unknown", "scripted DEL unknown", "scripted DEL not-started",
	}
	if !slices.Equal(o.calls, want) {
		t.Errorf("it was told of %q; want %q", o.calls, want)
	}
	for i, change := range o.running {
		if change != 1-2*(i%2) {
			t.Fatalf("processes came and went: %v; want one after the other", o.running)
		}
	}
	if n := len(o.running); n != 2*len(want) {
		t.Errorf("it was told %d times that a process comes or goes; want %d", n, 2*len(want))
	}
}
