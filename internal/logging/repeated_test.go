package logging

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
)

// repeatedLog returns a Repeated of one minute, and a function that compares the lines since its last
// call, each as its message, n and the number of repetitions.
func repeatedLog(t *testing.T) (r *Repeated, want func(when string, lines ...string)) {
	log, hook := test.NewNullLogger()
	return NewRepeated(log, time.Minute), func(when string, lines ...string) {
		t.Helper()
		var got []string
		for _, e := range hook.AllEntries() {
			got = append(got, fmt.Sprint(e.Level, " ", e.Message, " ", e.Data["n"], " ", e.Data["repeated"]))
		}
		hook.Reset()
		if !slices.Equal(got, lines) {
			t.Errorf("%s: logged %q; want %q", when, got, lines)
		}
	}
}

const others = "warning refused (the last one since the previous line) "

func TestRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, want := repeatedLog(t)
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		for n := range 100 {
			r.Warn(logrus.Fields{"n": n}, "refused")
		}
		want("the first", "warning refused 0 <nil>")
		wait(time.Minute)
		want("a minute later", others+"99 99")
		r.Warn(logrus.Fields{"n": 7}, "refused")
		want("one within the next minute")
		wait(time.Minute)
		want("after that", others+"7 1")
		wait(time.Hour)
		want("without an event")
		r.Warn(logrus.Fields{"n": 8}, "refused")
		want("the first again", "warning refused 8 <nil>")
	})
}

func TestRepeatedStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, want := repeatedLog(t)
		r.Stop()
		want("Stop without an event")
		for n := range 3 {
			r.Warn(logrus.Fields{"n": n}, "refused")
		}
		want("the first", "warning refused 0 <nil>")
		r.Stop()
		want("Stop", others+"2 2")
		time.Sleep(time.Minute / 2)
		for n := range 3 {
			r.Warn(logrus.Fields{"n": n}, "refused")
		}
		want("the first after Stop", "warning refused 0 <nil>")
		time.Sleep(time.Minute / 2)
		synctest.Wait()
		want("the timer before Stop")
		r.Stop()
	})
}

func TestRepeatedKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, want := repeatedLog(t)
		refuse := func(kind any, n int) { r.Log(kind, logrus.InfoLevel, logrus.Fields{"n": n}, "refused") }
		for n := range 3 {
			refuse("a", n)
		}
		refuse("b", 1)
		want("the first of each kind", "info refused 0 <nil>", "info refused 1 <nil>")
		time.Sleep(time.Minute / 2)
		for kind := 2; kind < 10*maxKinds; kind++ {
			refuse(kind, kind)
		}
		var lines []string
		for kind := 2; kind <= maxKinds; kind++ {
			lines = append(lines, fmt.Sprint("info refused ", kind, " <nil>"))
		}
		want("the first of many kinds, the last line of which is of all further ones", lines...)
		time.Sleep(time.Minute / 2)
		synctest.Wait()
		r.Stop()
		const others = "info refused (the last one since the previous line) "
		want("a minute after the first, and Stop", others+"2 2", others+fmt.Sprint(10*maxKinds-1, " ", 9*maxKinds-1))
	})
}
