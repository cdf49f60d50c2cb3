package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

func TestReadinessHasATimeAndOneLogLineForEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		h := &history{log: log, pools: map[string]spell{}}
		begin := time.Now()
		steps := []struct {
			reasons []string
			since   time.Duration
			lines   int
			level   logrus.Level
			failure string
		}{
			{[]string{"no configuration"}, 0, 1, logrus.WarnLevel, "not ready: no configuration"},
			{[]string{"no configuration"}, 0, 1, logrus.WarnLevel, "not ready: no configuration"},
			{[]string{"no plugin"}, 0, 1, logrus.WarnLevel, "not ready: no plugin"},
			{nil, 3 * time.Second, 2, logrus.InfoLevel, "not ready: no plugin"},
			{nil, 3 * time.Second, 2, logrus.InfoLevel, "not ready: no plugin"},
			{[]string{"no plugin", "no disk"}, 5 * time.Second, 3, logrus.WarnLevel, "not ready: no plugin; no disk"},
		}
		for i, s := range steps {
			if got := h.readiness(s.reasons, true).Sub(begin); got != s.since {
				t.Errorf("step %d: since %s; want %s", i, got, s.since)
			}
			if n := len(hook.AllEntries()); n != s.lines || hook.LastEntry().Level != s.level {
				t.Errorf("step %d: %d lines, the last at level %s; want %d, %s", i, n, hook.LastEntry().Level, s.lines, s.level)
			}
			if f := h.lastFailure(); f.Text != s.failure {
				t.Errorf("step %d: the last failure is %q; want %q", i, f.Text, s.failure)
			}
			h.readiness([]string{"an answer is awaited"}, false)
			time.Sleep(time.Second)
		}
		if f := h.lastFailure(); f.At.Sub(begin) != 5*time.Second {
			t.Errorf("the last failure was at %s; want 5s", f.At.Sub(begin))
		}
	})
}

func TestAPoolIsAsItIsSinceItsConfigurationOrItsPluginChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &history{pools: map[string]spell{}}
		conf := time.Now()
		step := func(says string, p restapi.PoolReport, want time.Time) {
			t.Helper()
			time.Sleep(time.Second)
			if got := h.pool(p); !got.Equal(want) {
				t.Errorf("%s: since %s; want %s", says, got.Sub(conf), want.Sub(conf))
			}
		}
		step("first seen", restapi.PoolReport{Since: conf}, conf)
		step("the same", restapi.PoolReport{Since: conf}, conf)
		step("the plugin says no", restapi.PoolReport{Since: conf, NotReady: "50"}, conf.Add(3*time.Second))
		step("it still does", restapi.PoolReport{Since: conf, NotReady: "50"}, conf.Add(3*time.Second))
		step("it is well again", restapi.PoolReport{Since: conf}, conf.Add(5*time.Second))
		later := time.Now()
		step("another configuration", restapi.PoolReport{Since: later}, later)
		step("another pool", restapi.PoolReport{Pool: "blue", Since: conf}, conf)
	})
}

func TestAStartIsToldInTheLogWithoutAnybodyAsking(t *testing.T) {
	for name, before := range map[string]string{
		"with a plugin that answers at once":                    "",
		"with one that takes longer than a report waits for it": "sleep 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := valid(t)
			log, ended, stop := run(t, c)
			log.await(t, `msg="Not ready"`, ended)
			c.write(t, "bin/plugin", "#!/bin/sh\n"+before+"echo '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}'\n")
			if err := os.Chmod(filepath.Join(c.CNIBinDirs[0], "plugin"), 0o755); err != nil {
				t.Fatal(err)
			}
			c.write(t, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"plugin"}}]}`)
			log.await(t, "msg=Ready", ended)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if text := log.text.String(); strings.Count(text, `msg="Not ready"`) != 1 {
				t.Errorf("the log says more than once that it is not ready:\n%s", text)
			}
		})
	}
}
