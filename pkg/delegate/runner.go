// Package delegate runs a delegated CNI IPAM plugin (docs/how-it-works.md, Running a plugin): it
// builds the invocation, keeps the plugin's process within bounds, and tells
// what is known afterwards.
package delegate

import (
	"context"
	"fmt"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// Runner runs plugins. It is safe for concurrent use.
type Runner struct {
	opts Options
	// log is that of the options, whose level can be asked for.
	log *logrus.Entry
	// env is what every plugin gets besides CNI_*.
	env      []string
	locks    idLocks
	netns    ownNetNS
	probe    netnsProbe
	versions versionCache
	// elf reports which binaries are ELF files.
	elf fileFacts[bool]
	// prevResults are the results that CHECK and DEL can be given as they are.
	prevResults prevResults
	// expected are the processes that stand by for calls to come.
	expected expectations
	// stores are what lookups have shown to be the plugins' own.
	stores stores
	// handles tells that plugin processes have handles that can be waited for.
	handles bool
	linkMAC func(name string) (string, error)
}

// New returns a runner. The error names the option that is wrong; a NetNS that
// is our own network namespace is refused, because the CNI skeleton would let
// the plugin work first and fail afterwards (docs/plugins.md, Network namespaces).
func New(o Options) (*Runner, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	own := findOwnNetNS()
	if err := own.check(o.NetNS); err != nil {
		return nil, err
	}
	return &Runner{
		opts:     o,
		log:      o.Log.WithFields(nil),
		env:      commonEnv(o.Env, os.LookupEnv),
		locks:    idLocks{folder: o.LockDir, path: o.LockFile, patience: o.Timeout, grace: o.Grace, log: o.Log},
		netns:    own,
		expected: expectations{byID: map[string]*expectation{}},
		stores:   stores{known: map[store]proof{}},
		handles:  handlesWork(),
		linkMAC:  linkMAC,
	}, nil
}

// Add runs ADD. Requested addresses are asked for by the first convention of
// the context's profile that can carry all of them (call.Context.Convention);
// if there is none, the plugin is not started. Errors are *call.Error; after
// one whose Outcome is Unknown or Refused the plugin may hold something.
func (r *Runner) Add(ctx context.Context, c call.Call) (call.Result, error) {
	x := r.execution(call.VerbAdd, c)
	result, err := x.add(ctx, c)
	return result, x.called(err)
}

func (x *execution) add(ctx context.Context, c call.Call) (call.Result, error) {
	args, stdin, err := x.prepare(&c)
	if err != nil {
		return call.Result{}, x.notStarted(err)
	}
	stdout, err := x.exec(ctx, c.Invocation.Binary, stdin, x.environment(c, args).list())
	if err != nil {
		return call.Result{}, err
	}
	printed, err := parseResult(ctx, stdout, c.Invocation.CNIVersion)
	if err != nil {
		return call.Result{}, x.unknown(fmt.Errorf("its answer cannot be understood: %w", err))
	}
	result, err := readResult(printed, c.Invocation.CNIVersion, x.runner.linkMAC)
	if err != nil {
		return call.Result{}, x.unknown(err)
	}
	x.runner.prevResults.remember(result.Raw, c.Invocation.CNIVersion)
	result.InStore = x.runner.prove(c, result)
	return result, nil
}

// Del runs DEL. Errors are *call.Error; nil means that the plugin says it holds
// nothing for the container ID any more.
func (r *Runner) Del(ctx context.Context, c call.Call) error {
	return r.withoutResult(ctx, call.VerbDel, c)
}

// Check runs CHECK, which the context must have (call.Context.HasCheck). Errors are
// *call.Error; call.Lost tells which of them mean that the address is gone.
func (r *Runner) Check(ctx context.Context, c call.Call) error {
	return r.withoutResult(ctx, call.VerbCheck, c)
}

// Status asks whether the plugin can serve an ADD now (CNI spec 1.1.0, STATUS).
// Below that version it cannot be asked, and nil is returned. Errors are *call.Error.
func (r *Runner) Status(ctx context.Context, c call.Invocation) error {
	if !c.HasStatus() {
		return nil
	}
	return r.withoutResult(ctx, call.VerbStatus, call.Call{Invocation: c})
}

func (r *Runner) withoutResult(ctx context.Context, verb string, c call.Call) error {
	x := r.execution(verb, c)
	return x.called(x.withoutResult(ctx, c))
}

func (x *execution) withoutResult(ctx context.Context, c call.Call) error {
	args, stdin, err := x.prepare(&c)
	if err != nil {
		return x.notStarted(err)
	}
	_, err = x.exec(ctx, c.Invocation.Binary, stdin, x.environment(c, args).list())
	return err
}

// prepare finds the executable, and returns CNI_ARGS and stdin of the call.
func (x *execution) prepare(c *call.Call) (args string, stdin []byte, err error) {
	if c.Invocation, err = x.runner.located(c.Invocation); err != nil {
		return "", nil, err
	}
	return x.runner.prepare(x.verb, *c)
}
