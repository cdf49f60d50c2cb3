package status

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// fakeNode is the journal and the engine. Its writes wait for hang, unless that is nil.
type fakeNode struct {
	hang    chan struct{}
	writes  atomic.Int32
	write   atomic.Pointer[error]
	failure engine.Failure
}

func (f *fakeNode) Writable() error {
	f.writes.Add(1)
	if f.hang != nil {
		<-f.hang
	}
	if err := f.write.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *fakeNode) Quarantined() ([]journal.Quarantined, error) {
	return []journal.Quarantined{{Name: "x"}}, nil
}

func (f *fakeNode) Count(k attachment.EventKind) uint64 {
	return map[attachment.EventKind]uint64{attachment.EventLost: 1}[k]
}
func (f *fakeNode) LastFailure() engine.Failure          { return f.failure }
func (f *fakeNode) Plugins() []engine.PluginUse          { return nil }
func (f *fakeNode) Warm() map[string]engine.WarmPool     { return nil }
func (f *fakeNode) Summaries() map[string]engine.Summary { return nil }

// newReporter returns a reporter of a node with one pool, which has no CNI configuration.
func newReporter(t *testing.T, f *fakeNode) *Reporter {
	t.Helper()
	conf, err := cniconf.New(cniconf.Options{Dir: filepath.Join(t.TempDir(), "none")})
	check.Must(t, err)
	return New(Options{
		StateDir: "/state", Settings: func() []options.Setting { return []options.Setting{{Name: "owners"}} }, Conf: conf,
		Journal: f, Engine: f, Log: logging.Discard(),
		Spool: func() *models.SpoolStatus { return &models.SpoolStatus{Error: "no spool"} },
		Ended: func() *models.EndedContainers { return &models.EndedContainers{Pending: 2} },
	})
}

// run calls Start, and Run until the end of the test, and then waits for the checks.
func (r *Reporter) run(t *testing.T) {
	t.Helper()
	began := time.Now()
	r.Start()
	if took := time.Since(began); took > reportTimeout {
		t.Errorf("Start took %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { r.Run(ctx); close(stopped) }()
	t.Cleanup(func() {
		cancel()
		<-stopped
		check.NoError(t, r.Wait(context.Background()))
	})
}

// about returns the reasons with a text.
func about(rep *models.DelegatedIPAMStatus, text string) []string {
	return slices.DeleteFunc(slices.Clone(rep.Reasons), func(why string) bool { return !strings.Contains(why, text) })
}

// A part that is not the reason why the daemon is not ready is checked as seldom as in a daemon that is ready.
func TestReadyPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNode{}
		r := newReporter(t, f)
		r.run(t)
		check.Equal(t, "ready without a CNI configuration", r.Report(t.Context(), "").Ready, false)
		time.Sleep(2*readyTicks*tick + tick/2)
		synctest.Wait()
		check.Equal(t, "checks of the state directory", f.writes.Load(), 3)
		err := errors.New("disk full")
		f.write.Store(&err)
		time.Sleep(readyTicks * tick)
		f.writes.Store(0)
		time.Sleep(readyTicks * tick)
		synctest.Wait()
		check.Equal(t, "checks of one that fails", f.writes.Load(), readyTicks)
	})
}

// A dead disk delays no report for longer than reportTimeout, is reported, and does not hide the other reasons.
func TestHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNode{hang: make(chan struct{})}
		r := newReporter(t, f)
		r.run(t)
		synctest.Wait()
		for range 3 {
			began := time.Now()
			rep := r.Report(t.Context(), "")
			if took := time.Since(began); took > reportTimeout {
				t.Errorf("the report took %s", took)
			}
			if rep.Ready || len(about(rep, "/state does not respond")) != 1 || len(about(rep, "no CNI configuration")) != 1 {
				t.Errorf("ready %v, because of %q", rep.Ready, rep.Reasons)
			}
			time.Sleep(time.Minute)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check.True(t, errors.Is(r.Wait(ctx), context.Canceled), "the check in progress was not waited for")
		close(f.hang)
		time.Sleep(tick)
		if rep := r.Report(t.Context(), ""); len(about(rep, "/state")) != 0 || len(rep.Quarantined) != 1 {
			t.Errorf("after it responds: %q, %+v", rep.Reasons, rep.Quarantined)
		}
	})
}

func TestWriteFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNode{}
		r := newReporter(t, f)
		r.run(t)
		synctest.Wait()
		check.Equal(t, "reasons before", len(about(r.Report(t.Context(), ""), "disk")), 0)
		r.WriteFailed(errors.New("disk full"))
		check.Equal(t, "reasons before the next check", len(about(r.Report(t.Context(), ""), "disk full")), 1)
		still := errors.New("still no space on the disk")
		f.write.Store(&still)
		time.Sleep(tick + time.Millisecond)
		check.Equal(t, "reasons after a check", len(about(r.Report(t.Context(), ""), "still no space")), 1)
		f.write.Store(nil)
		time.Sleep(tick)
		check.Equal(t, "reasons after a good check", len(about(r.Report(t.Context(), ""), "disk")), 0)
	})
}

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporter(t, &fakeNode{})
		r.run(t)
		rep := r.Report(t.Context(), "")
		if rep.Spool.Error != "no spool" || rep.EndedContainers.Pending != 2 || rep.Counters["lost"] != 1 || len(rep.Options) != 1 || rep.Since == nil {
			t.Errorf("the report is %+v", rep)
		}
		r.Stopping()
		of := r.Report(t.Context(), "pods")
		if of.Ready || len(about(of, "is stopping")) != 1 || len(about(of, `"pods" is not served`)) != 1 {
			t.Errorf("the report of the network is %+v", of)
		}
	})
}

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		f := &fakeNode{}
		r := newReporter(t, f)
		r.Log = log
		steps := []struct {
			reasons []string
			since   time.Duration
			lines   int
			level   logrus.Level
			failure string
		}{
			{[]string{"no configuration"}, 0, 1, logrus.WarnLevel, "not ready: no configuration"},
			{[]string{"no plugin"}, 0, 1, logrus.WarnLevel, "not ready: no plugin"},
			{nil, 2 * time.Second, 2, logrus.InfoLevel, ""},
			{nil, 2 * time.Second, 2, logrus.InfoLevel, ""},
			{[]string{"no plugin", "no disk"}, 4 * time.Second, 3, logrus.WarnLevel, "not ready: no plugin; no disk"},
		}
		for i, s := range steps {
			since := r.readySince(s.reasons)
			check.Equal(t, fmt.Sprint("since, step ", i), since.Sub(r.started), s.since)
			if n := len(hook.AllEntries()); n != s.lines || hook.LastEntry().Level != s.level {
				t.Errorf("step %d: %d lines, the last at level %s; want %d, %s", i, n, hook.LastEntry().Level, s.lines, s.level)
			}
			text := ""
			if e := r.lastError(s.reasons, since); e != nil {
				text = e.Text
			}
			check.Equal(t, fmt.Sprint("last error, step ", i), text, s.failure)
			time.Sleep(time.Second)
		}
		f.failure = engine.Failure{Text: "DEL failed", At: time.Now()}
		check.Equal(t, "later failure", r.lastError([]string{"no disk"}, r.started).Text, "DEL failed")
	})
}

func TestPoolSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporter(t, &fakeNode{})
		conf := time.Now()
		step := func(name, pool, status string, configured, want time.Time) {
			t.Helper()
			time.Sleep(time.Second)
			if got, _ := r.observe(pool, status, configured); !got.Equal(want) {
				t.Errorf("%s: since %s; want %s", name, got.Sub(conf), want.Sub(conf))
			}
		}
		step("first report", "default", "", conf, conf)
		step("no change", "default", "", conf, conf)
		step("STATUS fails", "default", "50", conf, conf.Add(3*time.Second))
		step("STATUS still fails", "default", "50", conf, conf.Add(3*time.Second))
		step("STATUS succeeds", "default", "", conf, conf.Add(5*time.Second))
		later := time.Now()
		step("another configuration", "default", "", later, later)
		step("another pool", "blue", "", conf, conf)
	})
}

// A pool whose plugin is missing and its attachments have the same cause, which is reported once.
func TestMissingPluginReason(t *testing.T) {
	const cause = `failed to find plugin "host-local" in path [/bin]; put the plugin there`
	const alone = `pool "default": attachments cannot be verified or released: /bin/host-local no longer exists: ` + cause
	for name, tt := range map[string]struct {
		others []string
		want   string
	}{
		"alone":          {nil, alone},
		"another plugin": {[]string{`pool "default": failed to find plugin "static" in path [/bin]; put the plugin there`}, alone},
		"same plugin":    {[]string{`pool "blue": /x`, `network "pods": ` + cause}, `pool "default": attachments cannot be verified or released: /bin/host-local no longer exists`},
	} {
		r := newReporter(t, &fakeNode{})
		r.moved.last = list[models.MovedPlugin]{all: []*models.MovedPlugin{
			{Pool: "default", Error: "/bin/host-local no longer exists: " + cause}, {Pool: "default", Executable: "/other"},
		}}
		rep := &report{DelegatedIPAMStatus: &models.DelegatedIPAMStatus{Reasons: tt.others}}
		r.addMovedPlugins(rep)
		check.Equal(t, "moved plugins", len(rep.MovedPlugins), 2)
		check.Equal(t, "reason, "+name, rep.Reasons[len(tt.others)], tt.want)
		check.Equal(t, "reasons, "+name, len(rep.Reasons), len(tt.others)+1)
	}
}

// A store may have leases of ranges that overlap.
func TestNoNegativeFree(t *testing.T) {
	if got := rangeUse(call.RangeUse{Total: 2, Used: 3}, call.RangeUse{}); len(got) != 1 || *got[0].Free != 0 {
		t.Errorf("got %v; want one family without a free address", got)
	}
}
