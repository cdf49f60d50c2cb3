package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

func TestReread(t *testing.T) {
	dir := t.TempDir()
	put := func(name, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("owners", "router")
	put("pool", "blue=a,red=b")
	env := map[string]string{"DELEGATED_IPAM_RELEASE_DELAY": "2m"}
	_, set := options.NewSidecar(env)
	if err := set.Flags().Parse([]string{"--config-dir=" + dir, "--plugin-env=A,B", "--cni-bin-dir=/x,/y", "--socket-mode=0600"}); err != nil {
		t.Fatal(err)
	}
	if err := set.Resolve(env); err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	var out bytes.Buffer
	log.SetOutput(&out)
	r := &reloader{serveOptions: serveOptions{env: env, set: set}, log: log, running: set.Settings()}
	before := set.Settings()

	for _, step := range []struct {
		name, file, value string
		// changed are options with another value afterwards, words the log.
		changed, words []string
		level          logrus.Level
	}{
		{"no change", "owners", "router\n", nil, nil, logrus.InfoLevel},
		{"level", "log-level", "debug", []string{"log-level"}, []string{"is applied", "option=log-level", "configured=debug"}, logrus.DebugLevel},
		{"level again", "log-level", "debug", nil, nil, logrus.DebugLevel},
		{"owners", "owners", "health", nil, []string{"level=warning", "restart the sidecar", "option=owners", "running=router", "configured=health"}, logrus.DebugLevel},
		{"owners as before", "owners", "router", nil, nil, logrus.DebugLevel},
		{"of a variable", "release-delay", "7m", nil, nil, logrus.DebugLevel},
		{"of a flag", "plugin-env", "C", nil, nil, logrus.DebugLevel},
		{"invalid value", "verify-interval", "soon", nil, []string{"level=error", "verify-interval", "soon"}, logrus.DebugLevel},
		{"invalid option", "verify-interval", "-1s", nil, []string{"level=error", "verify-interval", "0s or more"}, logrus.DebugLevel},
		{"valid again", "verify-interval", "10s", nil, nil, logrus.DebugLevel},
		{"skipped file", "owners~", "", nil, []string{"level=warning", "owners~"}, logrus.DebugLevel},
		{"default in a file", "log-level", "info", []string{"log-level"}, []string{"is applied"}, logrus.InfoLevel},
	} {
		t.Run(step.name, func(t *testing.T) {
			put(step.file, step.value)
			out.Reset()
			after := r.reread()
			var changed []string
			for i := range after {
				if after[i].Value != before[i].Value {
					changed = append(changed, after[i].Name)
				}
			}
			before = after
			if !slices.Equal(changed, step.changed) || log.GetLevel() != step.level {
				t.Errorf("changed are %q, the level is %s; want %q and %s", changed, log.GetLevel(), step.changed, step.level)
			}
			if len(step.words) == 0 && out.Len() > 0 {
				t.Errorf("the log has %s; want nothing", &out)
			}
			for _, want := range step.words {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the log has %s; want %q", &out, want)
				}
			}
		})
	}
}
