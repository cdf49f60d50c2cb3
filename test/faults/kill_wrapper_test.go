package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
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
	// nth counts the system calls of this name in one plugin call, from 1.
	// For afterDelay it is the delay in µs.
	nth int
}

const (
	// afterDelay replaces the system call where the plugin cannot be traced.
	afterDelay = "after"
	// maxDelay is about the duration of a host-local call, in µs.
	maxDelay = 8_000
	// delayCount is the number of delays for each plugin call.
	delayCount = 6
)

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

// randomDelay draws a kill of a plugin that cannot be traced.
func randomDelay(source *rand.Rand, verb string) pluginKill {
	return pluginKill{verb, afterDelay, 1 + source.IntN(maxDelay)}
}

// randomSyscall draws a kill of a plugin that is traced.
func randomSyscall(source *rand.Rand, verb string) pluginKill {
	calls := []string{"openat", "write", "unlinkat"}
	return pluginKill{verb, calls[source.IntN(len(calls))], 1 + source.IntN(16)}
}

// delayKills returns the kills after delays that the seed determines.
func delayKills(t *testing.T, verb string) []pluginKill {
	t.Helper()
	source := rand.New(rand.NewPCG(seed(t), 0))
	kills := make([]pluginKill, delayCount)
	for i := range kills {
		kills[i] = randomDelay(source, verb)
	}
	return kills
}

// canTrace reports whether a plugin can be killed at a system call. In CI it must be so.
func canTrace(t *testing.T) bool {
	t.Helper()
	err := strace.Try(t.Context())
	if err == nil {
		return true
	}
	why := fmt.Sprintf("plugins are killed after delays instead of at system calls: %v", err)
	if os.Getenv("CI") == "true" {
		t.Fatal("required in CI: " + why)
	}
	t.Log(why)
	return false
}

// installKillWrapper wraps the real host-local.
func (f *fixture) installKillWrapper() {
	f.t.Helper()
	f.node.WrapPluginELF(f.t, "host-local", killWrapperScript)
}

func (f *fixture) plugin() string { return filepath.Join(f.node.BinDir, "host-local") }

// setPluginKill kills the next call of the verb.
func (f *fixture) setPluginKill(k pluginKill) {
	f.t.Helper()
	file := f.plugin() + ".plan"
	harness.Must(f.t, errors.Join(os.WriteFile(file+".new", []byte(k.String()), 0o600), os.Rename(file+".new", file)))
}

// traceLine is a line of strace: the system call, its arguments and its result.
var traceLine = regexp.MustCompile(`^\d+ +(\w+)\((.*)`)

// writeCalls returns a kill at each system call of a trace that writes.
func writeCalls(trace, verb string) []pluginKill {
	count := map[string]int{}
	var kills []pluginKill
	for line := range strings.Lines(trace) {
		m := traceLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		count[m[1]]++
		if m[1] != "openat" || strings.Contains(m[2], "O_CREAT") {
			kills = append(kills, pluginKill{verb, m[1], count[m[1]]})
		}
	}
	return kills
}

// pluginWasKilled reports, after the recovery, whether the plugin was killed: the recovery has
// waited for it by the lock that it inherited. strace counts system calls for each thread, so a
// plugin that continued in another one has escaped, and so has one that ended because its
// sidecar was killed before.
func (f *fixture) pluginWasKilled() bool {
	return strings.Contains(f.pluginTrace(), "+++ killed by SIGKILL +++")
}

func (f *fixture) pluginTrace() string {
	data, err := os.ReadFile(f.plugin() + ".trace")
	if err != nil {
		return err.Error()
	}
	return string(data)
}
