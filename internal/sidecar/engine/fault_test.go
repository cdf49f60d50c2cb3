package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// fault is what goes wrong at a step: a plugin call or a journal write.
type fault string

const (
	noFault fault = ""
	// The plugin returns an error: without an effect, or after its work.
	refused    fault = "refused"
	errorAfter fault = "error after"
	notStarted fault = "not started" // the plugin did not run
	// The plugin's server does not respond, or the plugin reports that it holds nothing: both with the
	// one code of CNI's library.
	outage   fault = "connection refused"
	saysLost fault = "Failed to find address"
	// The call timed out: before it did anything, after its work, or with the work done by
	// a server lateCall later.
	timeoutBefore fault = "timeout before"
	timeoutAfter  fault = "timeout after"
	timeoutLate   fault = "timeout late"
	// A DEL succeeds, and is carried out queuedDel later.
	delQueued fault = "DEL queued"
	// A write fails and leaves the old state, or reports an error although it is durable.
	writeFailed  fault = "write failed"
	writeUnknown fault = "write reported as failed"
	// The process is killed.
	killBefore fault = "killed before"
	killAfter  fault = "killed after"
)

const (
	lateCall  = 100 * time.Second
	queuedDel = 10 * time.Hour
)

// nth injects a fault at the n-th occurrence of a step, counted from 1.
func nth(n int, step string, injected fault) func(string) fault {
	return func(s string) fault {
		if s != step {
			return noFault
		}
		n--
		if n == 0 {
			return injected
		}
		return noFault
	}
}

// once injects a fault at the next occurrence of a step.
func once(step string, injected fault) func(string) fault { return nth(1, step, injected) }

// always injects a fault at each occurrence of the steps.
func always(injected fault, steps ...string) func(string) fault {
	return func(s string) fault {
		if slices.Contains(steps, s) {
			return injected
		}
		return noFault
	}
}

// each injects the fault of a step at each occurrence of it.
func each(at map[string]fault) func(string) fault {
	return func(step string) fault { return at[step] }
}

// faultAt returns the fault at a step, and whether the step has an effect.
func (n *fakeNode) faultAt(step string) (injected fault, effect bool) {
	if n.killed {
		return killBefore, false
	}
	if n.fault != nil {
		injected = n.fault(step)
	}
	switch injected {
	case killBefore:
		n.killed = true
		return injected, false
	case killAfter:
		n.killed = true
		return injected, true
	case refused, outage, saysLost, notStarted, timeoutBefore, timeoutLate, writeFailed:
		return injected, false
	}
	return injected, true
}

// actLate runs what a call began some time after its process has ended. Only a plugin with a
// store off the node still does that after a reboot. n.mu is held by the caller.
func (n *fakeNode) actLate(c call.Call, after time.Duration, act func()) {
	began := n.reboots
	go func() {
		time.Sleep(after)
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.reboots == began || !c.Invocation.Profile.OnNode() {
			n.steps = append(n.steps, "late: "+c.ContainerID)
			act()
		}
	}()
}

func journalError(injected fault) error {
	switch injected {
	case noFault:
		return nil
	case killBefore, killAfter:
		return errKilled
	}
	return fmt.Errorf("no space left on device (%s)", injected)
}

func pluginError(verb string, c call.Call, injected fault) error {
	e := &call.Error{Verb: verb, Plugin: c.Invocation.Plugin, ContainerID: c.ContainerID, Outcome: call.Unknown, Err: errors.New(string(injected))}
	switch injected {
	case noFault, delQueued:
		return nil
	case refused, errorAfter:
		return refusal(verb, c, 7, string(injected))
	case outage, saysLost:
		return refusal(verb, c, 999, string(injected))
	case notStarted:
		e.Outcome = call.NotStarted
	}
	return e
}

// refusal is the error of a plugin that returned a CNI error.
func refusal(verb string, c call.Call, code uint, msg string) error {
	return &call.Error{Verb: verb, Plugin: c.Invocation.Plugin, ContainerID: c.ContainerID, Outcome: call.Refused, Code: code, Msg: msg}
}
