package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/failpoint"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

// killWrapperScript runs the real host-local and kills it by the file "$0.plan". "ADD write 2"
// kills the next ADD at its second write, by strace; "ADD none 0" only traces it; "ADD after 700"
// kills it after 700 µs, without strace. The next call of the verb consumes the file. A background
// job of the shell has no stdin unless it is given one.
const killWrapperScript = `#!/bin/sh
calls=openat,write,mkdirat,unlinkat
export GODEBUG=asyncpreemptoff=1
after() {
  exec 3<&0
  "$0.real" <&3 3<&- &
  sleep "$(printf '0.%06d' "$1")"
  kill -KILL $!
  wait $!
  code=$?
  [ $code -ne 137 ] && exit $code
  echo "+++ killed by SIGKILL +++" >"$0.trace"
  kill -KILL $$
}
if read -r verb call nth 2>/dev/null <"$0.plan" && [ "$verb" = "$CNI_COMMAND" ] && mv "$0.plan" "$0.done"; then
  [ "$call" = after ] && after "$nth" 2>/dev/null
  [ "$call" = none ] && exec strace -f -q -e "trace=$calls" -o "$0.trace" "$0.real" 2>/dev/null
  exec strace -f -q -e "trace=$call" -e "inject=$call:signal=KILL:when=$nth" -o "$0.trace" "$0.real" 2>/dev/null
fi
exec "$0.real"
`

// pluginKill is a kill of the plugin before a system call; without a system call there is none.
type pluginKill struct {
	verb, syscall string
	// nth counts the system calls of this name in one plugin call, from 1; with afterDelay it is in µs.
	nth int
}

// afterDelay replaces the system call where the plugin cannot be traced.
const afterDelay = "after"

// String returns the content of the plan file.
func (k pluginKill) String() string {
	if k.syscall == "" {
		return k.verb + " none 0\n"
	}
	return fmt.Sprintf("%s %s %d\n", k.verb, k.syscall, k.nth)
}

// earlier returns the kill for the next try after the plugin escaped this one.
func (k pluginKill) earlier() pluginKill {
	if k.syscall == afterDelay {
		k.nth /= 2
	}
	return k
}

// randomPluginKill draws a kill, which is after a delay where the plugin cannot be traced.
func randomPluginKill(source *rand.Rand, verb string, traced bool) pluginKill {
	const duration = 8_000 // about that of a host-local call, in µs
	if !traced {
		return pluginKill{verb, afterDelay, 1 + source.IntN(duration)}
	}
	return pluginKill{verb, draw(source, []string{"openat", "write", "unlinkat"}), 1 + source.IntN(16)}
}

// pluginKills returns the kills of a scenario's last plugin call: at each system call that
// writes, or after some delays where it cannot be traced.
func pluginKills(t *testing.T, sc scenario, verb string) []pluginKill {
	var kills []pluginKill
	if !canTrace(t) {
		source := rand.New(rand.NewPCG(seed(t), 0))
		for range 6 {
			kills = append(kills, randomPluginKill(source, verb, false))
		}
		return kills
	}
	f := newFixture(t, sc)
	f.node.WrapPlugin(t, "host-local", killWrapperScript)
	sc.prepare(f)
	f.setPluginKill(pluginKill{verb: verb})
	sc.act(f)
	f.waitConsistent()
	f.stopAndCheck()
	count := map[string]int{}
	for _, s := range strace.Parse(f.read(f.plugin() + ".trace")) {
		if s.Call == strace.Exited || s.Ended {
			continue
		}
		count[s.Call]++
		if s.Call != "openat" || strings.Contains(s.Args, "O_CREAT") {
			kills = append(kills, pluginKill{verb, s.Call, count[s.Call]})
		}
	}
	if len(kills) == 0 {
		t.Fatalf("host-local's %s has no system call that writes", verb)
	}
	return kills
}

// canTrace reports whether a plugin can be killed at a system call. In CI it must be so.
func canTrace(t *testing.T) bool {
	t.Helper()
	err := strace.Try(t.Context())
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("required in CI: %v", err)
	}
	if err != nil {
		t.Logf("plugins are killed after delays instead of at system calls: %v", err)
	}
	return err == nil
}

func (f *fixture) plugin() string { return filepath.Join(f.node.BinDir, "host-local") }

// setPluginKill kills the next call of the verb.
func (f *fixture) setPluginKill(k pluginKill) { f.writePlan(f.plugin()+".plan", k.String()) }

// pluginWasKilled reports, after the recovery, whether the plugin was killed: the recovery has
// waited for it by the lock that it inherited. strace counts system calls for each thread, so a
// plugin that continued in another one has escaped, and so has one that ended because its
// daemon was killed before.
func (f *fixture) pluginWasKilled() bool {
	return strings.Contains(f.read(f.plugin()+".trace"), "+++ killed by SIGKILL +++")
}

// killUninstall kills uninstall at each visit; another run completes it, or a daemon starts with the rest.
func killUninstall(t *testing.T) {
	st := newStats(t, uninstallKilled)
	f := released(t)
	f.setPlan(failpoint.Plan{})
	f.wantUninstalled()
	visits := f.visits()
	for _, p := range []failpoint.Point{failpoint.UninstallRemoving, failpoint.UninstallRemoved} {
		if !slices.Contains(visits, p) {
			t.Errorf("uninstall does not visit the failpoint %q", p)
		}
	}
	type uninstallCase struct {
		plan failpoint.Plan
		next string
	}
	var all []uninstallCase
	for _, plan := range plansOf(visits) {
		all = append(all, uninstallCase{plan, "uninstall"}, uninstallCase{plan, "serve"})
	}
	for _, c := range selectCases(t, all, func(c uninstallCase) string { return string(c.plan.Point) + c.next }) {
		t.Run(c.plan.String()+" then "+c.next, func(t *testing.T) {
			t.Parallel()
			st.countCases(t, 1)
			f := released(t)
			f.setPlan(c.plan)
			if out, err := f.uninstall(); err == nil || err.Error() != "signal: killed" {
				t.Fatalf("uninstall was not killed: %v\n%s", err, out)
			}
			st.kills.Add(1)
			f.clearPlan()
			if c.next == "uninstall" {
				f.wantUninstalled()
				return
			}
			f.start()
			f.daemon.Release(t, f.daemon.AllocateFor(t, "router")...)
		})
	}
}

// released returns a node whose killed daemon had released everything and left its socket and files.
func released(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, scenario{})
	f.start()
	f.daemon.AllocateFor(t, "router")
	if out := f.node.Command(t, "release", "--all", "--yes"); out.ExitCode != 0 {
		t.Fatalf("release: %s", out.Stderr)
	}
	harness.Eventually(t, "the removals to be on disk", func() error {
		left, err := oracle.Journal(f.node.StateDir)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%+v", left)
		}
		return err
	})
	f.kill()
	check.Must(t, os.WriteFile(journalFile(f.node)+".new", []byte("x"), 0o600))
	return f
}

// uninstall runs the command with the plan.
func (f *fixture) uninstall() ([]byte, error) {
	f.t.Helper()
	cmd := exec.Command(f.node.Program, "uninstall", "--yes", "--state-dir="+f.node.StateDir, "--socket-path="+f.node.Socket)
	cmd.Env = append(os.Environ(), f.node.Env...)
	return cmd.CombinedOutput()
}

// wantUninstalled wants that a run leaves nothing.
func (f *fixture) wantUninstalled() {
	f.t.Helper()
	if out, err := f.uninstall(); err != nil {
		f.t.Errorf("uninstall: %v\n%s", err, out)
	}
	for _, path := range []string{f.node.StateDir, f.node.Socket} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			f.t.Errorf("%s exists (%v)", path, err)
		}
	}
}
