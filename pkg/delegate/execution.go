package delegate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// execution is one plugin call on its way. The CNI library's own (invoke.RawExec)
// keeps neither time nor environment nor output in bounds.
type execution struct {
	runner      *Runner
	verb        string
	plugin      string
	containerID string
	netns       string
	ephemeral   bool
	// owner and pool are for the log only.
	owner, pool string
	// began is when the call did.
	began time.Time
	// stderr is what the plugin said there, once it has ended.
	stderr string
}

func (r *Runner) execution(verb string, c call.Call) *execution {
	return &execution{
		runner:      r,
		began:       time.Now(),
		verb:        verb,
		plugin:      c.Invocation.Plugin,
		containerID: c.ContainerID,
		netns:       c.Invocation.NetNS,
		ephemeral:   c.Invocation.NetNS == EphemeralNetNS,
		owner:       c.Owner,
		pool:        c.Pool,
	}
}

// exec runs the plugin and returns what it printed, if it is no error. ctx ends the
// wait for a plugin of an earlier life; a plugin that has begun ends by its own time
// limit only, since giving it up halfway would leave an address that nobody knows of.
// Errors are *call.Error.
func (x *execution) exec(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, x.notStarted(err)
	}
	var files []*os.File
	if x.ephemeral {
		ns, err := newNetNS()
		if err != nil {
			return nil, x.notStarted(fmt.Errorf("a network namespace for the call (--cni-netns %s): %w", EphemeralNetNS, err))
		}
		defer ns.Close()
		files = append(files, ns)
	} else if err := x.runner.netns.refuse(x.netns); err != nil {
		return nil, x.notStarted(err)
	}
	p := x.runner.program(path, environ)
	p.works = x.containerID != ""
	if e := x.runner.expected.of(x.containerID); e != nil {
		if l, ok := e.claim(p, stdin); ok {
			return x.finish(time.Now(), l)
		}
		files = append(files, e.lock.file)
	} else if p.works {
		lock, err := x.runner.locks.take(ctx, x.containerID)
		if err != nil {
			return nil, x.notStarted(err)
		}
		defer lock.release()
		files = append(files, lock.file)
	}
	p.stdin, p.files = stdin, files
	begin := time.Now()
	x.runner.opts.Observer.Running(1)
	l, err := p.launch()
	if err != nil {
		x.runner.opts.Observer.Running(-1)
		return nil, x.notStarted(err)
	}
	return x.finish(begin, l)
}

// program is a plugin with an environment, to be run as the options say.
func (r *Runner) program(path string, environ []string) program {
	return program{
		path: path, env: environ, timeout: r.opts.Timeout, grace: r.opts.Grace,
		handles: r.handles,
	}
}

// finish waits for the end of a process and tells what that means for the call, which
// began with it or found it standing by.
func (x *execution) finish(begin time.Time, l launched) ([]byte, error) {
	end := l.finish()
	x.runner.opts.Observer.Running(-1)
	x.stderr = printable(end.stderr)
	stdout, err := x.judge(l.program, end)
	x.tell(time.Since(begin), end, err)
	return stdout, err
}

// tell writes the log's line of a call. A line that nobody reads is not made: its
// fields are more work than the rest of what follows a call.
func (x *execution) tell(took time.Duration, end ending, err error) {
	log := x.runner.log
	if !log.Logger.IsLevelEnabled(logrus.DebugLevel) {
		return
	}
	log.WithFields(logrus.Fields{
		"owner": x.owner, "poolName": x.pool, "containerID": x.containerID, "plugin": x.plugin, "verb": x.verb,
		"duration": took, "exit": end.exit.String(), "stderr": x.stderr,
	}).WithError(err).Debug("plugin call ended")
}

// judge tells what a plugin that has ended did. Only one well-formed error
// document with a failing exit status is a refusal (CNI spec section 5).
func (x *execution) judge(p program, end ending) ([]byte, error) {
	said, isError := decodeError(end.stdout)
	switch {
	case end.timedOut:
		return nil, x.unknown(fmt.Errorf("it did not end within %s (--plugin-timeout) and was ended", p.timeout))
	case end.tooMuch:
		return nil, x.unknown(fmt.Errorf("it printed more than %d bytes on stdout and was ended", maxStdout))
	case end.unknown != nil:
		return nil, x.unknown(fmt.Errorf("how it ended cannot be told: %w", end.unknown))
	case !end.exit.Exited():
		return nil, x.unknown(fmt.Errorf("it was killed: %s", end.exit))
	case end.exit.success() && !isError:
		return end.stdout, nil
	case end.exit.success():
		return nil, x.saying(x.unknown(fmt.Errorf("it printed an error (code %d) but its exit status is 0", said.Code)), said)
	case isError:
		return nil, x.saying(x.failure(call.Refused, nil), said)
	case len(end.stdout) == 0:
		return nil, x.unknown(fmt.Errorf("%s without a word on stdout", end.exit))
	default:
		return nil, x.unknown(fmt.Errorf("%s, and what it printed is no CNI error: %q", end.exit, printable(head(end.stdout, 256))))
	}
}

// decodeError returns the error document that stdout consists of, if it does.
func decodeError(stdout []byte) (types.Error, bool) {
	if len(stdout) == 0 {
		return types.Error{}, false // as most calls end
	}
	var e types.Error
	err := json.Unmarshal(stdout, &e)
	return e, err == nil && e.Code != 0
}

func (x *execution) notStarted(err error) *call.Error { return x.failure(call.NotStarted, err) }

func (x *execution) unknown(err error) *call.Error { return x.failure(call.Unknown, err) }

func (x *execution) failure(o call.Outcome, err error) *call.Error {
	return &call.Error{Verb: x.verb, Plugin: x.plugin, ContainerID: x.containerID, Outcome: o, Stderr: x.stderr, Err: err}
}

// saying adds the plugin's own words, made fit for a log.
func (x *execution) saying(e *call.Error, said types.Error) *call.Error {
	e.Code, e.Msg, e.Details = said.Code, printable(head([]byte(said.Msg), maxWords)), printable(head([]byte(said.Details), maxWords))
	return e
}
