package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/internal/process"
)

// maxMessage limits each text of a plugin that goes into logs and errors, in bytes.
const maxMessage = 4 << 10

// execution is one plugin call. The CNI library's own (invoke.RawExec) limits neither time nor
// environment nor output.
type execution struct {
	runner *Runner
	verb   string
	call   call.Call
	// start is when the call began.
	start time.Time
	// stderr is what the plugin wrote there, on one line, once it has ended.
	stderr string
}

func (r *Runner) execution(verb string, c call.Call) *execution {
	return &execution{runner: r, verb: verb, call: c, start: time.Now()}
}

// run prepares the call and runs the program, again if that is older than at the ADD and refuses the CNI version. Errors
// are *call.Error.
func (x *execution) run(ctx context.Context) (stdout []byte, err error) {
	x.call.Invocation, err = x.runner.withExecutable(x.call.Invocation)
	if err != nil {
		return nil, x.notStarted(err)
	}
	in, err := x.runner.prepare(x.verb, x.call.Invocation)
	if err != nil {
		return nil, x.notStarted(err)
	}
	stdout, err = x.exec(ctx, in)
	if e, ok := errors.AsType[*call.Error](err); ok && e.Code == types.ErrIncompatibleCNIVersion {
		x.runner.versions.Clear() // the executable may be a wrapper, which does not change with the plugin that it runs
		if inv, err := x.runner.atVersion(ctx, x.call.Invocation); err == nil && inv.CNIVersion != x.call.CNIVersion {
			x.call.Invocation = inv
			return x.run(ctx)
		}
	}
	return stdout, err
}

// exec runs the plugin and returns its standard output unless that is an error. ctx ends the wait
// for a plugin of a previous run. A plugin that has started ends by its own time limit only:
// abandoned halfway it would leave an address that no record knows. Errors are *call.Error.
func (x *execution) exec(ctx context.Context, in input) ([]byte, error) {
	err := ctx.Err()
	if err == nil {
		err = checkNetNS(x.call.NetNS)
	}
	if err != nil {
		return nil, x.notStarted(err)
	}
	r := x.runner
	cmd := process.Command{Path: in.binary, Env: slices.Concat(r.env, in.env), Timeout: r.opts.Timeout, Grace: r.opts.Grace}
	cmd.Lock, err = x.lock(ctx)
	if err != nil {
		return nil, x.notStarted(err)
	}
	defer cmd.Lock.Unlock()
	begin := time.Now()
	r.opts.Observer.Running(1)
	defer r.opts.Observer.Running(-1)
	started, err := cmd.Start(in.stdin)
	if err != nil {
		return nil, x.notStarted(err)
	}
	result := started.Wait()
	x.stderr = logging.OneLine(string(result.Stderr))
	stdout, err := x.interpret(result)
	if e, ok := errors.AsType[*call.Error](err); ok && e.Outcome == call.Unknown {
		started.LeaveLock()
	}
	x.log(ctx, time.Since(begin), logrus.Fields{"exit": result.Exit.String()}, err)
	return stdout, err
}

// lock takes the lock that the plugin's process inherits; nil for a verb that changes nothing. A GC of an earlier run does
// not know what an ADD adds, so that waits for its end.
func (x *execution) lock(ctx context.Context) (lock *process.IDLock, err error) {
	gc := "(GC of network " + x.call.Network + ")"
	switch {
	case x.verb == call.VerbGC:
		return x.runner.locks.Lock(ctx, gc)
	case x.verb == call.VerbAdd:
		err = x.runner.locks.Await(ctx, gc)
	case x.call.ContainerID == "":
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return x.runner.locks.Lock(ctx, x.call.ContainerID)
}

func (x *execution) log(ctx context.Context, took time.Duration, fields logrus.Fields, err error) {
	fields["plugin"], fields["verb"], fields["duration"] = x.call.Plugin, x.verb, took
	for name, text := range map[string]string{
		"owner": x.call.Owner, "poolName": x.call.Pool, "containerID": x.call.ContainerID, "stderr": x.stderr,
	} {
		if text != "" {
			fields[name] = text
		}
	}
	if err != nil {
		fields[logrus.ErrorKey] = err
	}
	logging.ForRequest(ctx, x.runner.opts.Log).WithFields(fields).Debug("Plugin call ended")
}

// interpret returns what the result of a process means for the call. Only a well-formed error
// document with a failing exit status is a refusal (CNI spec section 5).
func (x *execution) interpret(r process.Result) ([]byte, error) {
	var reported types.Error
	isError := json.Unmarshal(r.Stdout, &reported) == nil && reported.Code != 0
	switch {
	case r.Unended:
		return nil, x.unknown(errors.New("exceeded its limits, and SIGKILL has not ended its process: it may still do its work"))
	case r.TimedOut:
		return nil, x.unknown(fmt.Errorf("did not end within %s (--plugin-timeout) and was terminated%s", x.runner.opts.Timeout, x.hint(call.VerbAdd, "some plugins wait like this when their range is full or their backend does not respond")))
	case r.TooMuchOutput:
		return nil, x.unknown(fmt.Errorf("printed more than %d bytes on stdout and was terminated", process.MaxStdout))
	case r.Exit == nil:
		return nil, x.unknown(fmt.Errorf("its exit status is unknown: %w", r.Err))
	case !r.Exit.Exited():
		return nil, x.unknown(fmt.Errorf("was killed (%s)%s", r.Exit, x.hint(x.verb, crashHint)))
	case r.Exit.Success() && !isError:
		return r.Stdout, nil
	case r.Exit.Success():
		return nil, withPluginError(x.unknown(fmt.Errorf("printed an error (code %d), but its exit status is 0", reported.Code)), reported)
	case isError:
		return nil, withPluginError(x.failure(call.Refused, nil), reported)
	case len(r.Stdout) == 0:
		return nil, x.unknown(fmt.Errorf("%s and nothing on stdout%s", r.Exit, x.hint(x.verb, crashHint)))
	default:
		return nil, x.unknown(fmt.Errorf("%s, and stdout is not a CNI error: %q", r.Exit, logging.OneLine(head(string(r.Stdout), 256))))
	}
}

const crashHint = "if each call ends so, look for what a killed one has left in the plugin's store, such as a lock"

// hint returns what to look for after a call of a verb; empty for another verb.
func (x *execution) hint(verb, text string) string {
	if x.verb != verb {
		return ""
	}
	return "; " + text
}

func (x *execution) notStarted(err error) *call.Error { return x.failure(call.NotStarted, err) }

func (x *execution) unknown(err error) *call.Error { return x.failure(call.Unknown, err) }

func (x *execution) failure(o call.Outcome, err error) *call.Error {
	return &call.Error{Verb: x.verb, Plugin: x.call.Plugin, ContainerID: x.call.ContainerID, Outcome: o, Stderr: x.stderr, Err: err}
}

// withPluginError adds the error that the plugin printed, fit for a log.
func withPluginError(e *call.Error, reported types.Error) *call.Error {
	e.Code = reported.Code
	e.Msg, e.Details = logging.OneLine(head(reported.Msg, maxMessage)), logging.OneLine(head(reported.Details, maxMessage))
	return e
}

// report reports the end of the call to the observer, and returns its error.
func (x *execution) report(err error) error {
	var outcome call.Outcome
	if e, ok := errors.AsType[*call.Error](err); ok {
		outcome = e.Outcome
	}
	x.runner.opts.Observer.Called(x.verb, x.call.Plugin, outcome, time.Since(x.start))
	return err
}

func head(text string, n int) string { return text[:min(n, len(text))] }
