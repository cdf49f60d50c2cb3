package plugin

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

// Values of Options.HostLocal.
const (
	// HostLocalAuto makes the calls of host-local in this process, unless there is another program of that name than
	// that of containernetworking/plugins.
	HostLocalAuto = "auto"
	// HostLocalEmbedded makes them in this process, whatever is installed.
	HostLocalEmbedded = "embedded"
	// HostLocalProgram runs the program, as of every other plugin.
	HostLocalProgram = "program"
)

const (
	// HostLocal is the type of the plugin that can be embedded.
	HostLocal        = "host-local"
	hostLocalPackage = "github.com/containernetworking/plugins/plugins/ipam/host-local"
)

// Embedded returns why calls of a plugin type are made in this process; empty if the plugin's program is run. It looks
// at the program each time, because it may be installed, replaced or removed later.
func (r *Runner) Embedded(pluginType string) string {
	if pluginType != HostLocal || r.opts.HostLocal == HostLocalProgram {
		return ""
	}
	if r.opts.HostLocal == HostLocalEmbedded {
		return "--host-local is embedded"
	}
	path := r.installed(pluginType)
	if path == "" && !r.foreign.Load() {
		return fmt.Sprintf("there is no program host-local in %s (--cni-bin-dir)", strings.Join(r.opts.BinDirs, ", "))
	}
	if v := r.hostLocalVersion(path); v != "" {
		return fmt.Sprintf("%s is host-local %s of containernetworking/plugins", path, v)
	}
	r.foreign.Store(true) // it may be replaced now, and has its leases elsewhere
	return ""
}

// installed returns the path of a plugin's program, which may not be accessible; empty if there certainly is none.
func (r *Runner) installed(pluginType string) string {
	for _, dir := range r.opts.BinDirs {
		path := filepath.Join(dir, pluginType)
		if info, err := os.Stat(path); err == nil && !info.IsDir() || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return path
		}
	}
	return ""
}

// hostLocalVersion returns the version of a program that is host-local of containernetworking/plugins by its Go build
// information, and nothing of any other. That tells what is compatible, not what is trusted.
func (r *Runner) hostLocalVersion(path string) string {
	state, err := fileState(path)
	if err != nil {
		return ""
	}
	if known, ok := r.hostLocals.Load(state); ok {
		return known.(string)
	}
	version := ""
	if info, err := buildinfo.ReadFile(path); err == nil && info.Path == hostLocalPackage {
		version = info.Main.Version
		for _, s := range info.Settings { // of a release, which is built in its repository
			if found := buildVersion.FindStringSubmatch(s.Value); s.Key == "-ldflags" && found != nil {
				version = found[1]
			}
		}
	}
	r.hostLocals.Store(state, version)
	return version
}

// buildVersion is how the releases of containernetworking/plugins set their version (build_linux.sh).
var buildVersion = regexp.MustCompile(`buildversion\.BuildVersion=(v[0-9][0-9a-zA-Z.+-]*)`)

// embedded makes the call in this process. ctx ends the wait for the store's lock, and for a program of a previous run
// that still acts on the container ID. Errors are *call.Error.
func (x *execution) embedded(ctx context.Context) (types.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, x.notStarted(err)
	}
	in, err := x.runner.prepareCurrent(x.verb, x.call.Invocation)
	if err != nil {
		return nil, x.notStarted(err)
	}
	lock, err := x.lock(ctx)
	if err != nil {
		return nil, x.notStarted(err)
	}
	defer lock.Unlock()
	ctx, cancel := context.WithTimeout(ctx, x.runner.opts.Timeout)
	defer cancel()
	begin := time.Now()
	result, err := x.runner.stores.Call(ctx, x.verb, hostlocal.Args{
		ContainerID: x.call.ContainerID, IfName: x.call.IfName, CNIArgs: in.args, Config: in.stdin,
		Exclude: x.runner.opts.Exclude, Taken: x.call.Taken,
	})
	if err != nil {
		err = x.embeddedError(err)
	}
	x.log(ctx, time.Since(begin), logrus.Fields{"embedded": true}, err)
	if err != nil || result == nil {
		return nil, err
	}
	return result, nil
}

// embeddedError is the error of a call as that of the program: what the plugin refuses has the code that the CNI
// skeleton gives an error without one.
func (x *execution) embeddedError(err error) *call.Error {
	if _, ok := errors.AsType[hostlocal.NotStartedError](err); ok {
		return x.notStarted(err)
	}
	if _, ok := errors.AsType[hostlocal.UnknownError](err); ok {
		return x.unknown(err)
	}
	reported := types.Error{Code: types.ErrInternal, Msg: err.Error()}
	if e, ok := errors.AsType[*types.Error](err); ok {
		reported = *e
	}
	return withPluginError(x.failure(call.Refused, nil), reported)
}

// FreeLease is hostlocal.Stores.Free in the store of an invocation's network, also while a program changes it.
func (r *Runner) FreeLease(ctx context.Context, inv call.Invocation, ip netip.Addr, containerID string, unused func(remove func()) bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	return r.stores.Free(ctx, inv.Config, ip, containerID, unused)
}

// ReleaseEnded releases what has ended in the store of an invocation's network, whose plugin is embedded, and returns it.
// ended gets a container ID and when its lease was written. An error may follow the release of some.
func (r *Runner) ReleaseEnded(ctx context.Context, inv call.Invocation, ended func(containerID string, written time.Time) bool) ([]call.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	leases, err := r.stores.Release(ctx, inv.Config, func(l hostlocal.Lease, written time.Time) bool { return ended(l.ContainerID, written) })
	var released []call.Attachment
	for _, l := range leases {
		released = append(released, call.Attachment{ContainerID: l.ContainerID, IfName: l.Interface})
	}
	return released, err
}
