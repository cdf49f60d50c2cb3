package faults

import (
	"regexp"
	"strconv"
	"strings"
)

// step is the begin or the end of a system call, or the end of a process, in
// the order in which strace printed them. Between begin and end of a call those
// of other threads may lie.
type step struct {
	pid int
	// call is the system call's name; exited for the end of a process.
	call string
	// args is what strace prints between the parentheses, as far as it is known.
	args string
	// ended is set at the end of a call, ok if it did not fail.
	ended, ok bool
}

const exited = "exited"

// The lines of "strace -f": strace(1), "The trace output".
var (
	line       = regexp.MustCompile(`^(\d+) +(.*)$`)
	whole      = regexp.MustCompile(`^(\w+)\((.*)\) += (\S+)`)
	unfinished = regexp.MustCompile(`^(\w+)\((.*) <unfinished \.\.\.>$`)
	resumed    = regexp.MustCompile(`^<\.\.\. (\w+) resumed>(.*)\) += (\S+)`)
	gone       = regexp.MustCompile(`^\+\+\+ (exited|killed)`)
)

// parseTrace returns the steps of a trace. Lines of another kind are left out.
func parseTrace(trace string) []step {
	var steps []step
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
			steps = append(steps, step{pid: pid, call: call, args: args, ended: true, ok: ok})
		}
		switch said := m[2]; {
		case gone.MatchString(said):
			steps = append(steps, step{pid: pid, call: exited})
		case unfinished.MatchString(said):
			m := unfinished.FindStringSubmatch(said)
			begun[pid] = m[2]
			steps = append(steps, step{pid: pid, call: m[1], args: m[2]})
		case resumed.MatchString(said):
			m := resumed.FindStringSubmatch(said)
			end(m[1], begun[pid]+m[2], m[3])
		case whole.MatchString(said):
			m := whole.FindStringSubmatch(said)
			steps = append(steps, step{pid: pid, call: m[1], args: m[2]})
			end(m[1], m[2], m[3])
		}
	}
	return steps
}
