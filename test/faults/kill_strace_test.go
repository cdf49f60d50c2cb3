package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/strace"
)

// executioner is the real host-local, in which one system call is the last where
// a file says so: "ADD write 2" for the second write of the next ADD. The call
// that follows it uses the file up. "ADD none 0" only writes down what is called.
// "ADD after 700" kills it after so many microseconds, without strace; what a
// shell starts beside itself has no stdin but one that it is given.
const executioner = `#!/bin/sh
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

// pluginDeath is a system call that a plugin dies at, before it does anything; the
// one without a name is none.
type pluginDeath struct {
	verb, call string
	// nth counts the system calls of that name in one plugin call, from 1. For
	// afterDelay it is the number of microseconds.
	nth int
}

// String is the content of the executioner's file.
func (d pluginDeath) String() string {
	if d.call == "" {
		return d.verb + " none 0\n"
	}
	return fmt.Sprintf("%s %s %d\n", d.verb, d.call, d.nth)
}

// canTrace tells whether a plugin can be killed at a system call. In CI it must be so.
func canTrace(t *testing.T) bool {
	t.Helper()
	err := strace.Try(t.Context())
	if err == nil {
		return true
	}
	why := fmt.Sprintf("plugins are killed after delays and not at system calls: %v", err)
	if os.Getenv("CI") == "true" {
		t.Fatal("in CI this must not be: " + why)
	}
	t.Log(why)
	return false
}

// installExecutioner puts itself in front of the real host-local.
func (s *scene) installExecutioner() {
	s.t.Helper()
	if err := os.Rename(s.plugin(), s.plugin()+".real"); err != nil {
		s.t.Fatal(err)
	}
	s.node.InstallELFScript(s.t, filepath.Base(s.plugin()), executioner)
}

func (s *scene) plugin() string { return filepath.Join(s.node.BinDir, "host-local") }

// condemn lets the next plugin call of the verb die, once.
func (s *scene) condemn(d pluginDeath) {
	s.t.Helper()
	file := s.plugin() + ".plan"
	if err := errors.Join(os.WriteFile(file+".new", []byte(d.String()), 0o600), os.Rename(file+".new", file)); err != nil {
		s.t.Fatal(err)
	}
}

// traced is one line of strace: the call, its arguments and how it ended.
var traced = regexp.MustCompile(`^\d+ +(\w+)\((.*)`)

// writes reads from the trace which system calls wrote.
func (s *scene) writes(verb string) []pluginDeath {
	s.t.Helper()
	count := map[string]int{}
	var deaths []pluginDeath
	for line := range strings.Lines(s.trace()) {
		m := traced.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		count[m[1]]++
		if m[1] != "openat" || strings.Contains(m[2], "O_CREAT") {
			deaths = append(deaths, pluginDeath{verb, m[1], count[m[1]]})
		}
	}
	return deaths
}

// executed tells, once recovery has settled, whether the condemned plugin was
// killed: recovery has waited for it by the lock that it inherited. strace counts
// for each thread, so a plugin that went on in another one has escaped, and so
// has one that ended because its sidecar was dead before.
func (s *scene) executed() bool { return strings.Contains(s.trace(), "+++ killed by SIGKILL +++") }

func (s *scene) trace() string {
	data, err := os.ReadFile(s.plugin() + ".trace")
	if err != nil {
		return err.Error()
	}
	return string(data)
}
