package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// Versions returns the CNI versions that a binary supports, in the order in which it reported them;
// nil if VERSION has not been run since the binary changed. It runs nothing.
func (r *Runner) Versions(binary string) []string {
	if binary == "" { // embedded
		return version.All.SupportedVersions()
	}
	state, err := fileState(binary)
	if err != nil {
		return nil
	}
	supported, _ := r.versions.Load(state)
	versions, _ := supported.([]string)
	return slices.Clone(versions)
}

// fileState identifies a file in one state: by its path, inode, size and modification time.
func fileState(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	var inode uint64
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = stat.Ino
	}
	return fmt.Sprintf("%s %d %d %s", path, inode, info.Size(), info.ModTime().Format(time.RFC3339Nano)), nil
}

// implementation returns the executable of a plugin, empty for one in this process, and the CNI version of its calls.
func (r *Runner) implementation(ctx context.Context, pluginType string) (binary, cniVersion string, err error) {
	if r.Embedded(pluginType) != "" {
		return "", version.Current(), nil
	}
	if binary, err = r.findPlugin(pluginType); err != nil {
		return "", "", err
	}
	cniVersion, err = r.negotiate(ctx, pluginType, binary)
	return binary, cniVersion, err
}

// atVersion returns an invocation with the CNI version that its executable supports, which may be another one than that
// which has allocated.
func (r *Runner) atVersion(ctx context.Context, inv call.Invocation) (call.Invocation, error) {
	negotiated, err := r.negotiate(ctx, inv.Plugin, inv.Binary)
	if err != nil || negotiated == inv.CNIVersion {
		return inv, err
	}
	inv.CNIVersion = negotiated
	inv.Config, err = setKey(inv.Config, json.RawMessage(strconv.Quote(negotiated)), "cniVersion")
	return inv, err
}

// negotiate returns the highest CNI version that the library and the plugin both support.
// Concurrent callers share one VERSION call, which continues when one of them leaves.
func (r *Runner) negotiate(ctx context.Context, pluginType, binary string) (string, error) {
	state, err := fileState(binary)
	if err != nil {
		return "", fmt.Errorf("plugin %s: %w", pluginType, err)
	}
	var supported []string
	if known, ok := r.versions.Load(state); ok {
		supported = known.([]string)
	} else if supported, err = r.queryVersions(ctx, pluginType, binary, state); err != nil {
		return "", err
	}
	ours := version.All.SupportedVersions()
	for _, v := range slices.Backward(ours) {
		if slices.Contains(supported, v) {
			return v, nil
		}
	}
	return "", fmt.Errorf("plugin %s (%s) supports the CNI versions %q; expected one of %q", pluginType, binary, supported, ours)
}

// queryVersions runs VERSION, or waits for the call that runs it now, and keeps the result for the state
// of the binary. A failure is not kept.
func (r *Runner) queryVersions(ctx context.Context, pluginType, binary, state string) ([]string, error) {
	done := r.versionCalls.DoChan(state, func() (any, error) {
		x := r.execution(call.VerbVersion, call.Call{Invocation: call.Invocation{Plugin: pluginType}})
		versions, err := x.version(context.WithoutCancel(ctx), binary)
		if err == nil {
			r.versions.Store(state, versions)
		}
		return versions, x.report(err)
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("plugin %s VERSION: %w", pluginType, ctx.Err())
	case result := <-done:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.([]string), nil
	}
}

// version runs VERSION. A plugin from before CNI 0.2.0 refuses that verb with a fixed text, and
// supports 0.1.0. One that prints nothing, because it runs another plugin from CNI_PATH, is called again with the real one.
func (x *execution) version(ctx context.Context, binary string) ([]string, error) {
	// Plugins built with an old CNI skeleton require all variables for every verb. These are libcni's values.
	dummy := call.Invocation{NetNS: "dummy", IfName: "dummy", Path: "dummy"}
	stdin := fmt.Appendf(nil, `{"cniVersion":%q}`, version.Current())
	stdout, err := x.exec(ctx, input{binary, "", cniEnv(x.verb, dummy, ""), stdin})
	if err == nil && len(bytes.TrimSpace(stdout)) == 0 {
		dummy.Path = x.runner.cniPath
		stdout, err = x.exec(ctx, input{binary, "", cniEnv(x.verb, dummy, ""), stdin})
	}
	if refused, ok := errors.AsType[*call.Error](err); ok && refused.Msg == "unknown CNI_COMMAND: VERSION" {
		return []string{"0.1.0"}, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := (&version.PluginDecoder{}).Decode(stdout)
	if err != nil {
		return nil, x.unknown(err)
	}
	return info.SupportedVersions(), nil
}
