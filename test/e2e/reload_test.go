package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// configDir returns a directory with a file for each option.
func configDir(t *testing.T, n *harness.Node, values map[string]string) string {
	t.Helper()
	dir := filepath.Join(n.Dir, "config")
	check.Must(t, os.Mkdir(dir, 0o755))
	for name, value := range values {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644))
	}
	return dir
}

// optionOf returns an option of the daemon as its status has it.
func optionOf(t *testing.T, s *harness.Daemon, name string) string {
	t.Helper()
	for _, o := range s.Health(t).DelegatedIPAM.Options {
		if o.Name == name {
			return o.Value + " (" + o.Source + ")"
		}
	}
	t.Fatalf("the status lacks option %s", name)
	return ""
}

func TestReloadOptions(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	dir := configDir(t, n, map[string]string{"log-level": "info", "owners": "router"})
	n.Without = []string{"--log-level"}
	s := n.Start(t, "--config-dir="+dir, "--release-delay=1s")
	if log := s.Log(); strings.Contains(log, "level=debug") {
		t.Fatalf("debug lines at level info:\n%s", log)
	}

	for name, value := range map[string]string{"log-level": "debug", "owners": "router,health", "release-delay": "5m"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644))
	}
	s.Signal(t, syscall.SIGHUP)
	s.WaitLog(t, "option=log-level", "debug", "need a restart")
	s.AllocateFor(t, "router")
	s.WaitLog(t, "level=debug", "owner=router")
	if got := optionOf(t, s, "log-level"); got != "debug (config-dir)" {
		t.Errorf("the status has log-level %s; want the new value", got)
	}
	if got := optionOf(t, s, "owners"); got != "router (config-dir)" {
		t.Errorf("the status has owners %s; want the one that it runs with", got)
	}
	s.TryAllocate(t, harness.Request{Owner: "health"}).WantStatus(t, 403)
}

// A hangup while the daemon waits for the state directory does not end it either.
func TestHangupBeforeServing(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	first := n.Start(t)
	second := n.Launch(t)
	second.WaitLog(t, "waiting for the state directory")
	second.Signal(t, syscall.SIGHUP)
	second.Signal(t, syscall.SIGUSR1)
	second.WaitLog(t, "goroutine 1 [")
	first.Stop(t)
	second.WaitReady(t)
	second.WaitLog(t, "SIGHUP")
}
