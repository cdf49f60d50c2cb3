package delegate

import (
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

func TestACallIsLoggedWithAllThatIsKnownOfIt(t *testing.T) {
	logger, lines := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	b := newBench(t, func(o *Options) { o.Log = logger.WithField("of", "the one who runs it") })
	target := b.call("id")
	target.Owner, target.Pool = "health", "default"
	b.script(call.VerbDel, `{"error":`+goodError+`,"stderr":"trouble"}`)
	err := wantError(t, b.run(call.VerbDel, target), call.Refused, "999")
	line := lines.LastEntry()
	if line == nil || line.Message != "plugin call ended" || line.Level != logrus.DebugLevel {
		t.Fatalf("got the line %v, want the call's", line)
	}
	for field, want := range map[string]any{
		"owner": "health", "poolName": "default", "containerID": "id", "plugin": pluginType, "verb": "DEL",
		"exit": "exit status 1", "stderr": "trouble", "error": err, "of": "the one who runs it",
	} {
		if got := line.Data[field]; got != want {
			t.Errorf("%s: got %v, want %v", field, got, want)
		}
	}
	if took, ok := line.Data["duration"].(time.Duration); !ok || took <= 0 {
		t.Errorf("duration: got %v, want how long it took", line.Data["duration"])
	}
}

func TestALineThatNobodyReadsIsNotMade(t *testing.T) {
	logger, lines := logtest.NewNullLogger()
	b := newBench(t, func(o *Options) { o.Log = logger })
	x := b.runner.execution(call.VerbDel, b.call("id"))
	if n := testing.AllocsPerRun(10, func() { x.tell(time.Second, ending{}, nil) }); n != 0 {
		t.Errorf("it makes %v heap allocations, want none", n)
	}
	if got := lines.AllEntries(); len(got) != 0 {
		t.Errorf("got the lines %v, want none", got)
	}
}
