package profiletry

import (
	"context"
	"errors"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Succeeded is the Step.Outcome of a call without an error.
const Succeeded = "success"

// Step is one call of the plugin.
type Step struct {
	// Verb is ADD, DEL, CHECK or STATUS.
	Verb string `json:"verb"`
	// ContainerID is that of the call; empty for STATUS.
	ContainerID string `json:"container-id,omitempty"`
	// Purpose is the question that the step answers.
	Purpose string `json:"purpose"`
	// Outcome is Succeeded or a call.Outcome.
	Outcome string `json:"outcome"`
	// Addresses are those of an ADD.
	Addresses []string `json:"addresses,omitempty"`
	// Code is that of the plugin's error; 0 if it returned none.
	Code uint `json:"code,omitempty"`
	// Error is the whole error.
	Error string `json:"error,omitempty"`
}

// attempt is the result of a call as far as facts are concluded from it. The zero attempt was not
// made.
type attempt struct {
	made bool
	// result is that of an ADD that succeeded.
	result call.Result
	// err is nil for a success.
	err *call.Error
}

func (a attempt) succeeded() bool { return a.made && a.err == nil }

// refused reports whether the plugin returned a well-formed error.
func (a attempt) refused() bool { return a.made && a.err != nil && a.err.Outcome == call.Refused }

// text returns the outcome as text.
func (a attempt) text() string {
	switch {
	case !a.made:
		return "was not run"
	case a.err == nil && len(a.result.Addresses) > 0:
		return "returned " + join(prefixes(a.result))
	case a.err == nil:
		return "succeeded"
	case a.err.Outcome == call.Refused:
		return "was refused (" + errorText(a.err) + ")"
	}
	return "ended with an unknown outcome"
}

// run runs a verb on a scratch container ID and records the step.
func (t *trial) run(ctx context.Context, s *scratch, verb, purpose string) attempt {
	a := attempt{made: true}
	var err error
	switch verb {
	case call.VerbAdd:
		s.dirty, s.added = true, true
		a.result, err = t.Plugin.Add(ctx, s.call)
	case call.VerbCheck:
		s.dirty = true // a CHECK of dhcp acquires a lease
		err = t.Plugin.Check(ctx, s.call)
	case call.VerbDel:
		err = t.Plugin.Del(ctx, s.call)
		s.delErr = err
		s.dirty = s.dirty && err != nil && (s.added || !t.unknownID(err))
		s.added = s.added && s.dirty
	}
	step := Step{Verb: verb, ContainerID: s.call.ContainerID, Purpose: purpose, Outcome: Succeeded, Addresses: prefixes(a.result)}
	a.err = t.record(step, err)
	if verb == call.VerbAdd && a.err != nil && a.err.Outcome == call.Unknown {
		s.late = true
	}
	return a
}

// unknownID reports whether the error of a DEL is that of an ID that never had an ADD, from a plugin
// that refuses such a DEL: a CHECK before it has allocated nothing.
func (t *trial) unknownID(err error) bool {
	var e *call.Error
	first := t.seen.delNew
	return first.refused() && errors.As(err, &e) && e.Outcome == call.Refused &&
		mask(errorText(e), t.variables()) == mask(errorText(first.err), t.variables())
}

// record adds a step with its error to the report. It returns the error as a *call.Error.
func (t *trial) record(step Step, err error) *call.Error {
	var e *call.Error
	if err != nil {
		if !errors.As(err, &e) {
			e = &call.Error{Verb: step.Verb, Plugin: t.Type, ContainerID: step.ContainerID, Outcome: call.Unknown, Err: err}
		}
		step.Outcome, step.Code, step.Error = string(e.Outcome), e.Code, err.Error()
	}
	t.report.Steps = append(t.report.Steps, step)
	return e
}

// try runs a step of the trial itself. The error ends the trial: it was interrupted, or the plugin
// could not be started.
func (t *trial) try(ctx context.Context, s *scratch, verb, purpose string) (attempt, error) {
	if ctx.Err() != nil {
		return attempt{}, t.stop("interrupted")
	}
	a := t.run(ctx, s, verb, purpose)
	switch {
	case a.err == nil || a.err.Outcome != call.NotStarted:
		return a, nil
	case ctx.Err() != nil:
		return a, t.stop("interrupted")
	}
	return a, t.stop("%w", a.err)
}

// add runs ADD unless an earlier one had an unknown outcome: the next might have it, too.
func (t *trial) add(ctx context.Context, s *scratch, purpose string) (attempt, error) {
	if t.noAdd != "" {
		return attempt{}, nil
	}
	a, err := t.try(ctx, s, call.VerbAdd, purpose)
	if a.succeeded() {
		s.call.PrevResult = a.result.Raw
	}
	if s.late {
		t.noAdd = "an ADD to " + purpose + " ended with an unknown outcome"
	}
	return a, err
}

// del runs DEL. It ends the trial if the container ID may hold an address and the DEL failed: a
// plugin that does not release must not allocate more.
func (t *trial) del(ctx context.Context, s *scratch, purpose string) (attempt, error) {
	a, err := t.try(ctx, s, call.VerbDel, purpose)
	if err == nil && a.err != nil && (s.dirty || a.err.Outcome == call.Unknown) {
		err = t.stop("%w", a.err)
	}
	return a, err
}

// check runs CHECK with a prevResult, if the invocation has that verb.
func (t *trial) check(ctx context.Context, s *scratch, prev call.Result, purpose string) (attempt, error) {
	if !s.call.Invocation.HasCheck() {
		return attempt{}, nil
	}
	own := s.call.PrevResult
	s.call.PrevResult = prev.Raw
	a, err := t.try(ctx, s, call.VerbCheck, purpose)
	s.call.PrevResult = own
	return a, err
}
