package logging

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

// lockedLines collects lines that several goroutines write.
type lockedLines struct {
	mu  sync.Mutex
	out strings.Builder
}

func (l *lockedLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(line)
}

// next returns the lines since its last call.
func (l *lockedLines) next() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.out.Reset()
	return strings.Split(strings.TrimSpace(l.out.String()), "\n")
}

// repeatedLog returns a Repeated of one minute, and a function that returns the lines since its
// last call.
func repeatedLog() (r *Repeated, lines func() []string) {
	var out lockedLines
	log := logrus.New()
	log.SetOutput(&out)
	log.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true})
	return NewRepeated(log, time.Minute), out.next
}

func TestRepeated(t *testing.T) {
	const (
		first = `level=warning msg=refused n=%`
		more  = `level=warning msg="refused (the last one since the previous line)" n=% repeated=#`
	)
	line := func(text, n, repeated string) string { return strings.NewReplacer("%", n, "#", repeated).Replace(text) }
	synctest.Test(t, func(t *testing.T) {
		r, lines := repeatedLog()
		want := func(lines []string, want ...string) {
			t.Helper()
			if !slices.Equal(lines, want) {
				t.Errorf("logged %q; want %q", lines, want)
			}
		}
		for n := range 100 {
			r.Warn(logrus.Fields{"n": n}, "refused")
		}
		want(lines(), line(first, "0", ""))
		time.Sleep(time.Minute)
		synctest.Wait()
		want(lines(), line(more, "99", "99"))
		r.Warn(logrus.Fields{"n": 7}, "refused")
		want(lines(), "")
		time.Sleep(time.Minute)
		synctest.Wait()
		want(lines(), line(more, "7", "1"))
		time.Sleep(time.Hour)
		synctest.Wait()
		want(lines(), "")
		r.Warn(logrus.Fields{"n": 8}, "refused")
		want(lines(), line(first, "8", ""))
	})
}

func TestRepeatedStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, lines := repeatedLog()
		r.Stop()
		if got := lines(); !slices.Equal(got, []string{""}) {
			t.Errorf("without an event Stop logged %q", got)
		}
		for range 3 {
			r.Warn(nil, "refused")
		}
		lines()
		r.Stop()
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "repeated=2") {
			t.Errorf("Stop logged %q; want one line with the two other events", got)
		}
		time.Sleep(time.Minute / 2)
		for range 3 {
			r.Warn(nil, "refused")
		}
		lines()
		time.Sleep(time.Minute / 2)
		synctest.Wait()
		if got := lines(); !slices.Equal(got, []string{""}) {
			t.Errorf("the timer before Stop logged %q", got)
		}
		r.Stop()
	})
}
