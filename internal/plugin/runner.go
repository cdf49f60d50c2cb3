// Package plugin runs a delegated CNI IPAM plugin (docs/design/how-it-works.md, Running a plugin). It
// makes the invocation of a call, runs the plugin's process within limits, and returns its result,
// or an error with the known outcome.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/internal/process"
)

// Runner runs plugins. It is safe for concurrent use.
type Runner struct {
	opts Options
	// log is that of the options; of an Entry the level can be read.
	log *logrus.Entry
	// env is the environment of every plugin besides CNI_*.
	env []string
	// cniPath is CNI_PATH of new invocations.
	cniPath  string
	locks    *process.IDLocks
	ownNetNS ownNetNS
	versions versionCache
	// elf has for each binary whether it is an ELF file.
	elf fileCache[bool]
	// prevResults are the results that CHECK and DEL can be sent unchanged.
	prevResults prevResults
	// prestarted are the processes that were started ahead of their calls.
	prestarted prestartedByID
	// stores are what lookups have shown to be the plugins' own.
	stores  stores
	ranges  rangeCache
	linkMAC func(name string) (string, error)
}

// New returns a runner. The error names the invalid option. A NetNS that is the own network
// namespace is refused, because the CNI skeleton lets the plugin work first and fails afterwards
// (docs/reference/plugins.md, Network namespaces).
func New(o Options) (*Runner, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	if err := CheckNetNS(o.NetNS); err != nil {
		return nil, err
	}
	return &Runner{
		opts:       o,
		log:        o.Log.WithFields(nil),
		env:        commonEnv(o.Env, os.LookupEnv),
		cniPath:    strings.Join(o.BinDirs, ":"),
		locks:      &process.IDLocks{Dir: o.LockDir, Path: o.LockFile, Timeout: o.Timeout, Grace: o.Grace, Log: o.Log},
		ownNetNS:   findOwnNetNS(),
		prestarted: prestartedByID{byID: map[string]*prestarted{}},
		stores:     stores{known: map[store]proof{}},
		ranges:     rangeCache{known: map[string]parsedRanges{}},
		linkMAC:    linkMAC,
	}, nil
}

// Add runs ADD. Requested addresses are requested by the first convention of the invocation's
// profile that can carry all of them (call.Invocation.Convention); if there is none, the plugin is
// not started. Errors are *call.Error: after Unknown and Refused the plugin may hold addresses.
func (r *Runner) Add(ctx context.Context, c call.Call) (call.Result, error) {
	x := r.execution(call.VerbAdd, c)
	result, err := x.add(ctx, c)
	return result, x.report(err)
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
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		err = syntax // the library's text repeats that the result cannot be parsed
	}
	if err != nil {
		return call.Result{}, x.unknown(fmt.Errorf("its result cannot be parsed: %w", err))
	}
	result, err := readResult(printed, c.Invocation.CNIVersion, x.runner.linkMAC)
	if err != nil {
		return call.Result{}, x.unknown(err)
	}
	x.runner.prevResults.add(result.Raw, c.Invocation.CNIVersion)
	result.InStore = x.runner.prove(ctx, c, result)
	return result, nil
}

// Del runs DEL. Errors are *call.Error; nil means that by its own account the plugin holds nothing
// for the container ID any more.
func (r *Runner) Del(ctx context.Context, c call.Call) error {
	return r.withoutResult(ctx, call.VerbDel, c)
}

// Check runs CHECK, which the invocation must have (call.Invocation.HasCheck). Errors are
// *call.Error; call.IsLost reports which of them mean that the plugin does not hold the attachment.
func (r *Runner) Check(ctx context.Context, c call.Call) error {
	return r.withoutResult(ctx, call.VerbCheck, c)
}

// Status runs STATUS, which succeeds if the plugin can serve an ADD now (CNI spec 1.1.0). It
// returns nil where the CNI version of the invocation has no STATUS. Errors are *call.Error.
func (r *Runner) Status(ctx context.Context, inv call.Invocation) error {
	if !inv.HasStatus() {
		return nil
	}
	return r.withoutResult(ctx, call.VerbStatus, call.Call{Invocation: inv})
}

func (r *Runner) withoutResult(ctx context.Context, verb string, c call.Call) error {
	x := r.execution(verb, c)
	return x.report(x.withoutResult(ctx, c))
}

func (x *execution) withoutResult(ctx context.Context, c call.Call) error {
	args, stdin, err := x.prepare(&c)
	if err != nil {
		return x.notStarted(err)
	}
	_, err = x.exec(ctx, c.Invocation.Binary, stdin, x.environment(c, args).list())
	return err
}
