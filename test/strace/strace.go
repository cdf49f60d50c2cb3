// Package strace parses the output of strace: the system calls of a process and its children.
package strace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// Try returns an error if processes cannot be traced on this machine.
func Try(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "strace", "-f", "-qq", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		return fmt.Errorf("strace (Debian package strace) does not work: %w: %s", err, out)
	}
	return nil
}

// Step is the begin or the end of a system call, or the end of a process. Steps of other threads
// may lie between the begin and the end of a call.
type Step struct {
	PID int
	// Call is the system call's name; Exited for the end of a process.
	Call string
	// Args is the text between the parentheses that is known at that step.
	Args string
	// Ended is set at the end of a call, OK if it did not fail.
	Ended, OK bool
}

// Exited is the Call of the end of a process.
const Exited = "exited"

// The lines of "strace -f": strace(1), "The trace output".
var (
	line       = regexp.MustCompile(`^(\d+) +(.*)$`)
	complete   = regexp.MustCompile(`^(\w+)\((.*)\) += (\S+)`)
	unfinished = regexp.MustCompile(`^(\w+)\((.*) <unfinished \.\.\.>$`)
	resumed    = regexp.MustCompile(`^<\.\.\. (\w+) resumed>(.*)\) += (\S+)`)
	exited     = regexp.MustCompile(`^\+\+\+ (exited|killed)`)
)

// Parse returns the steps of a trace in their order, without lines of other kinds.
func Parse(trace string) []Step {
	var steps []Step
	begun := map[int]string{}
	for text := range strings.Lines(trace) {
		m := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		if m == nil {
			continue
		}
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			continue
		}
		end := func(call, args, result string) {
			ok := !strings.HasPrefix(result, "-") && result != "?"
			steps = append(steps, Step{PID: pid, Call: call, Args: args, Ended: true, OK: ok})
		}
		switch call := m[2]; {
		case exited.MatchString(call):
			steps = append(steps, Step{PID: pid, Call: Exited})
		case unfinished.MatchString(call):
			m := unfinished.FindStringSubmatch(call)
			begun[pid] = m[2]
			steps = append(steps, Step{PID: pid, Call: m[1], Args: m[2]})
		case resumed.MatchString(call):
			m := resumed.FindStringSubmatch(call)
			end(m[1], begun[pid]+m[2], m[3])
		case complete.MatchString(call):
			m := complete.FindStringSubmatch(call)
			steps = append(steps, Step{PID: pid, Call: m[1], Args: m[2]})
			end(m[1], m[2], m[3])
		}
	}
	return steps
}
