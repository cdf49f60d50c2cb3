package nodeevents

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

type events struct {
	t  *testing.T
	mu sync.Mutex
	// got are the Events so far.
	got []string
}

func (e *events) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.got)
}

func (e *events) Event(about runtime.Object, kind, reason, message string) {
	node, ok := about.(*corev1.ObjectReference)
	if !ok || node.Kind != "Node" || node.Name != "worker" || node.UID != "worker" || kind != corev1.EventTypeWarning {
		e.t.Errorf("a %s Event about %+v; want a Warning about the Node", kind, about)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, reason+" "+message)
}

// Each step is an action at a time after the start, in seconds.
type step struct {
	at int
	do func(c *Problems)
}

func fail(at int, reason string) step {
	return step{at, func(c *Problems) { c.Fail(reason, "failed") }}
}

func succeed(at int) step { return step{at, (*Problems).Succeed} }

// observe is an observation of the problem "State" with a subject, or of none if it is empty.
func observe(at int, subject string) step {
	return step{at, func(c *Problems) {
		current := map[string]Problem{}
		if subject != "" {
			current["State"] = Problem{Subject: subject, Message: "about " + subject}
		}
		c.Observe(current)
	}}
}

func TestEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		steps []step
		// want are the Events, each with the second after which there is one more.
		want map[int][]string
	}{
		"lasts, without another attempt": {[]step{fail(0, "A")}, map[int][]string{59: nil, 61: {"A failed"}, 3600: {"A failed"}}},
		"ends before":                    {[]step{fail(0, "A"), succeed(59)}, map[int][]string{3600: nil}},
		"repeated":                       {[]step{fail(0, "A"), fail(30, "A"), fail(100, "A")}, map[int][]string{61: {"A failed"}, 3600: {"A failed"}}},
		"begins again": {
			[]step{fail(0, "A"), succeed(50), fail(51, "A")}, map[int][]string{110: nil, 112: {"A failed"}},
		},
		"a second time": {
			[]step{fail(0, "A"), succeed(70), fail(80, "A")}, map[int][]string{139: {"A failed"}, 141: {"A failed", "A failed"}},
		},
		"another failure after it": {
			[]step{fail(0, "A"), fail(50, "B"), fail(55, "B"), succeed(100)}, map[int][]string{3600: nil},
		},
		"another failure, seen once": {[]step{fail(0, "A"), fail(50, "B")}, map[int][]string{109: nil, 111: {"B failed"}}},
		"failures in turns": {
			[]step{fail(0, "A"), fail(20, "B"), fail(40, "A"), fail(59, "B"), fail(75, "A"), fail(90, "B")},
			map[int][]string{74: nil, 76: {"A failed"}, 89: {"A failed"}, 91: {"A failed", "B failed"}, 3600: {"A failed", "B failed"}},
		},
		"success does not end a state": {[]step{observe(0, "x"), succeed(10)}, map[int][]string{59: nil, 61: {"State about x"}}},
		"an observation does not end a failure": {
			[]step{fail(0, "A"), observe(10, "")}, map[int][]string{61: {"A failed"}},
		},
		"a state ends before":         {[]step{observe(0, "x"), observe(59, "")}, map[int][]string{3600: nil}},
		"a state that is not certain": {[]step{observe(0, "x"), fail(50, "A"), succeed(100), observe(101, "")}, map[int][]string{3600: nil}},
		"a state that is certain again": {
			[]step{observe(0, "x"), fail(50, "A"), observe(100, "x"), succeed(100)}, map[int][]string{99: nil, 101: {"State about x"}},
		},
		"a new subject before the Event": {
			[]step{observe(0, "x"), observe(50, "x,y")}, map[int][]string{59: nil, 61: {"State about x,y"}, 3600: {"State about x,y"}},
		},
		"new subjects after the Event": {
			[]step{observe(0, "x"), observe(100, "y"), observe(130, "z")},
			map[int][]string{159: {"State about x"}, 161: {"State about x", "State about z"}},
		},
		"the subject of the Event again": {
			[]step{observe(0, "x"), observe(100, "y"), observe(130, "x")}, map[int][]string{99: {"State about x"}, 3600: {"State about x"}},
		},
		"stopped": {[]step{fail(0, "A"), {30, (*Problems).Stop}}, map[int][]string{3600: nil}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, _ := test.NewNullLogger()
				e := &events{t: t}
				c := New(log, e, "worker")
				defer c.Stop()
				now := 0
				until := func(second int) {
					time.Sleep(time.Duration(second-now) * time.Second)
					now = second
					synctest.Wait()
				}
				for second := range 3601 {
					until(second)
					for _, s := range tt.steps {
						if s.at == second {
							s.do(c)
						}
					}
					if want, checked := tt.want[second]; checked && !slices.Equal(e.list(), want) {
						t.Errorf("after %d s the Events are %q; want %q", second, e.list(), want)
					}
				}
			})
		})
	}
}

func TestNextCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _ := test.NewNullLogger()
		c, start := New(log, &events{t: t}, "worker"), time.Now()
		defer c.Stop()
		want := func(after time.Duration) {
			t.Helper()
			if got := c.NextCheck(); got.IsZero() != (after == 0) || after != 0 && got.Sub(start) != after {
				t.Errorf("the next check is at %s; want it %s after %s", got, after, start)
			}
		}
		want(0)
		c.Fail("A", "failed")
		time.Sleep(20 * time.Second)
		c.Observe(map[string]Problem{"State": {Subject: "x"}})
		want(55 * time.Second)
		time.Sleep(35 * time.Second)
		want(75 * time.Second)
		c.Succeed()
		c.Observe(nil)
		want(0)
	})
}

// The log has the begin and the end of each problem immediately.
func TestLog(t *testing.T) {
	log, hook := test.NewNullLogger()
	c := New(log, &events{t: t}, "worker")
	defer c.Stop()
	c.Fail("A", "failed")
	c.Fail("A", "failed")
	c.Succeed()
	var got []string
	for _, e := range hook.AllEntries() {
		problem, _ := e.Data["problem"].(string)
		got = append(got, strings.TrimSpace(e.Level.String()+" "+e.Message+" "+problem))
	}
	if want := []string{"warning Problem found failed", "info Problem ended"}; !slices.Equal(got, want) {
		t.Errorf("logged %q; want %q", got, want)
	}
}
