package sidecar

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := test.NewNullLogger()
		tr := &transitions{log: log, pools: map[string]statusSince{}}
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
			{nil, 3 * time.Second, 2, logrus.InfoLevel, ""},
			{nil, 3 * time.Second, 2, logrus.InfoLevel, ""},
			{[]string{"no plugin", "no disk"}, 5 * time.Second, 3, logrus.WarnLevel, "not ready: no plugin; no disk"},
		}
		for i, s := range steps {
			if got := tr.readiness(s.reasons, false).Sub(begin); got != s.since {
				t.Errorf("step %d: since %s; want %s", i, got, s.since)
			}
			if n := len(hook.AllEntries()); n != s.lines || hook.LastEntry().Level != s.level {
				t.Errorf("step %d: %d lines, the last at level %s; want %d, %s", i, n, hook.LastEntry().Level, s.lines, s.level)
			}
			if f := tr.lastFailure(); f.Text != s.failure {
				t.Errorf("step %d: the last failure is %q; want %q", i, f.Text, s.failure)
			}
			tr.readiness([]string{"pending"}, true)
			time.Sleep(time.Second)
		}
		if f := tr.lastFailure(); f.At.Sub(begin) != 5*time.Second {
			t.Errorf("the last failure was at %s; want 5s", f.At.Sub(begin))
		}
	})
}

func TestPoolSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &transitions{pools: map[string]statusSince{}}
		conf := time.Now()
		step := func(name, pool, status string, configured, want time.Time) {
			t.Helper()
			time.Sleep(time.Second)
			if got := tr.pool(pool, status, configured); !got.Equal(want) {
				t.Errorf("%s: since %s; want %s", name, got.Sub(conf), want.Sub(conf))
			}
		}
		step("first report", "", "", conf, conf)
		step("no change", "", "", conf, conf)
		step("STATUS fails", "", "50", conf, conf.Add(3*time.Second))
		step("STATUS still fails", "", "50", conf, conf.Add(3*time.Second))
		step("STATUS succeeds", "", "", conf, conf.Add(5*time.Second))
		later := time.Now()
		step("another configuration", "", "", later, later)
		step("another pool", "blue", "", conf, conf)
	})
}

func TestLogReadiness(t *testing.T) {
	for name, delay := range map[string]string{
		"fast plugin":               "",
		"slower than reportTimeout": "sleep 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := valid(t)
			log, ended, stop := run(t, c)
			log.await(t, `msg="Not ready"`, ended)
			write(t, c, "bin/plugin", "#!/bin/sh\n"+delay+"echo '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}'\n")
			check.Must(t, os.Chmod(filepath.Join(c.CNIBinDirs[0], "plugin"), 0o755))
			write(t, c, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"plugin"}}]}`)
			log.await(t, "msg=Ready", ended)
			check.NoError(t, stop())
			if text := log.text.String(); strings.Count(text, `msg="Not ready"`) != 1 {
				t.Errorf("the log has more than one line \"Not ready\":\n%s", text)
			}
		})
	}
}

// A pool whose plugin is missing and its attachments have the same cause, which is reported once.
func TestMissingPluginReason(t *testing.T) {
	const cause = `failed to find plugin "host-local" in path [/bin]; put the plugin there`
	p := movedPlugin{models.MovedPlugin{Pool: "default", Error: "/bin/host-local no longer exists: " + cause}, cause}
	const alone = `pool "default": attachments cannot be verified or released: /bin/host-local no longer exists: ` + cause
	for name, tt := range map[string]struct {
		others []string
		want   string
	}{
		"alone":          {nil, alone},
		"another plugin": {[]string{`pool "default": failed to find plugin "static" in path [/bin]; put the plugin there`}, alone},
		"same plugin":    {[]string{`pool "blue": /x`, `pool "default": network "pods": ` + cause}, `pool "default": attachments cannot be verified or released: /bin/host-local no longer exists`},
	} {
		var others []reason
		for _, text := range tt.others {
			others = append(others, reason{text: text})
		}
		check.Equal(t, "reason, "+name, p.reason(others), tt.want)
	}
}

// After a request has failed because of the state directory, the status is not an earlier one.
func TestReplacedStateDirInStatus(t *testing.T) {
	c := withSmallPlugin(t)
	log, ended, stop := run(t, c)
	log.await(t, "msg=Ready", ended)
	check.Must(t, os.Rename(c.StateDir, c.StateDir+".old"))
	request(t, c, http.MethodPost, "/v1/ipam?owner=router", http.StatusBadGateway)
	if status := health(t, c); status.DelegatedIpam.Ready {
		t.Error("ready without a state directory")
	}
	check.NoError(t, stop())
}
