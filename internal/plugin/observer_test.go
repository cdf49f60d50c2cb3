package plugin

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// recorder is an observer that keeps what it gets.
type recorder struct {
	calls   []string
	running []int
}

func (r *recorder) Called(verb, plugin string, outcome call.Outcome, took time.Duration) {
	if took > 0 {
		r.calls = append(r.calls, strings.TrimSpace(fmt.Sprintf("%s %s %s", plugin, verb, outcome)))
	}
}

func (r *recorder) Running(change int) { r.running = append(r.running, change) }

func TestObserver(t *testing.T) {
	r := &recorder{}
	f := newFake(t, func(o *Options) { o.Observer = r })
	c := f.call("id-1")
	f.must(c, call.VerbAdd, call.VerbCheck, call.VerbStatus, call.VerbDel)
	f.script("ADD", `{"error":`+goodError+`}`)
	wantError(t, f.run(call.VerbAdd, c), call.Refused, "999")
	f.script("ADD", `{"result":{"cniVersion":"1.1.0"}}`)
	wantError(t, f.run(call.VerbAdd, c), call.Unknown, "no address")
	f.script("DEL", `{"killSelf":9}`)
	wantError(t, f.run(call.VerbDel, c), call.Unknown, "killed")
	check.Must(t, errors.Join(os.Remove(c.Invocation.Binary), os.WriteFile(c.Invocation.Binary, nil, 0o600)))
	wantError(t, f.run(call.VerbDel, c), call.NotStarted, "mode 0755")

	want := []string{
		"scripted VERSION", "scripted ADD", "scripted CHECK", "scripted STATUS", "scripted DEL",
		"scripted ADD refused", "scripted ADD unknown", "scripted DEL unknown", "scripted DEL not-started",
	}
	if !slices.Equal(r.calls, want) {
		t.Errorf("got the calls %q; want %q", r.calls, want)
	}
	for i, change := range r.running {
		if change != 1-2*(i%2) {
			t.Fatalf("the processes were %v; want one after the other", r.running)
		}
	}
	if n := len(r.running); n != 2*len(want) {
		t.Errorf("got %d starts and ends of processes; want %d", n, 2*len(want))
	}
}
