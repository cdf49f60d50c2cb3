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
	"sync"
	"sync/atomic"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sync/singleflight"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/internal/process"
)

// Runner runs plugins. It is safe for concurrent use.
type Runner struct {
	opts Options
	// env is the environment of every plugin besides CNI_*.
	env []string
	// cniPath is CNI_PATH of new invocations.
	cniPath string
	locks   *process.IDLocks
	// versions has the CNI versions of each binary in the state of its file, and versionCalls the calls
	// in progress that find them out.
	versions     sync.Map
	versionCalls singleflight.Group
	// hostLocals has the version of each program in the state of its file (hostLocalVersion).
	hostLocals sync.Map
	// foreign: another program than that of containernetworking/plugins was installed as host-local.
	foreign atomic.Bool
	// stores are the stores of plugins with a lookup.
	stores hostlocal.Stores
	// ranges has the last parsedRanges of each network.
	ranges sync.Map
	// acceptedConfigs has the last acceptedConfig of each network.
	acceptedConfigs sync.Map
	// linkMAC looks at this machine; tests replace it.
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
	if err := checkNetNS(o.NetNS); err != nil {
		return nil, fmt.Errorf("--cni-netns: %w", err)
	}
	r := &Runner{
		opts:    o,
		env:     commonEnv(o.Env, os.LookupEnv),
		cniPath: strings.Join(o.BinDirs, ":"),
		locks:   &process.IDLocks{Dir: o.LockDir, Path: o.LockFile, Timeout: o.Timeout, Grace: o.Grace, Log: o.Log},
		linkMAC: linkMAC,
	}
	r.stores.Unwatched = func(dir string, err error) {
		r.opts.Log.WithError(err).WithField("directory", dir).Warn("The leases cannot be watched, so each call reads all of them; raise fs.inotify.max_user_instances if too many files are open")
	}
	return r, nil
}

// Add runs ADD. Requested addresses are requested by the first convention of the invocation's
// profile that can carry all of them (call.Invocation.Convention); if there is none, the plugin is
// not started. Errors are *call.Error: after Unknown and Refused the plugin may hold addresses.
func (r *Runner) Add(ctx context.Context, c call.Call) (_ call.Result, err error) {
	x := r.execution(call.VerbAdd, c)
	defer func() { err = x.report(err) }()
	embedded := r.Embedded(c.Plugin) != ""
	printed, err := x.result(ctx, embedded)
	if err != nil {
		return call.Result{}, err
	}
	result, err := readResult(printed, c.CNIVersion, r.linkMAC)
	if err != nil {
		return call.Result{}, x.unknown(err)
	}
	result.InStore = embedded || r.inStore(ctx, c.Invocation, result.Addresses)
	return result, nil
}

// result makes the call of an ADD and returns its result.
func (x *execution) result(ctx context.Context, embedded bool) (types.Result, error) {
	if embedded {
		return x.embedded(ctx)
	}
	stdout, err := x.run(ctx)
	if err != nil {
		return nil, err
	}
	printed, err := parseResult(ctx, stdout, x.call.CNIVersion)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		err = syntax // the library's text repeats that the result cannot be parsed
	}
	if err != nil {
		return nil, x.unknown(fmt.Errorf("its result cannot be parsed: %w", err))
	}
	return printed, nil
}

// Del runs DEL. Errors are *call.Error; nil means that by its own account the plugin holds nothing
// for the container ID any more.
func (r *Runner) Del(ctx context.Context, c call.Call) error { return r.run(ctx, call.VerbDel, c) }

// Check runs CHECK, which the invocation must have (call.Invocation.HasCheck). Errors are
// *call.Error; call.IsLost reports which of them mean that the plugin does not hold the attachment.
func (r *Runner) Check(ctx context.Context, c call.Call) error { return r.run(ctx, call.VerbCheck, c) }

// Status runs STATUS, which succeeds if the plugin can serve an ADD now (CNI spec 1.1.0). It
// returns nil where the CNI version of the invocation has no STATUS. Errors are *call.Error.
func (r *Runner) Status(ctx context.Context, inv call.Invocation) error {
	if !inv.HasStatus() || r.Embedded(inv.Plugin) != "" { // that of host-local always succeeds
		return nil
	}
	inv.ContainerID, inv.Requested = "", nil // it is about no attachment
	return r.run(ctx, call.VerbStatus, call.Call{Invocation: inv})
}

// GC runs GC, which the invocation must have (call.Invocation.HasGC). The plugin may release each
// attachment of the network that is not valid (CNI spec 1.1.0).
func (r *Runner) GC(ctx context.Context, inv call.Invocation, valid []call.Attachment) error {
	inv.ContainerID, inv.Requested = "", nil // it is about no attachment
	list, err := json.Marshal(valid)
	if err == nil {
		inv.Config, err = setKey(inv.Config, list, "cni.dev/valid-attachments")
	}
	if err != nil {
		return err
	}
	return r.run(ctx, call.VerbGC, call.Call{Invocation: inv})
}

func (r *Runner) run(ctx context.Context, verb string, c call.Call) (err error) {
	x := r.execution(verb, c)
	if r.Embedded(c.Plugin) != "" {
		_, err = x.embedded(ctx)
	} else {
		_, err = x.run(ctx)
	}
	return x.report(err)
}
