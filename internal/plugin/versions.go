package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sync/singleflight"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// versionCache keeps the result of VERSION for each binary as long as the file is unchanged. A failure is
// not kept. It is safe for concurrent use.
type versionCache struct {
	calls   singleflight.Group
	mu      sync.Mutex
	entries map[string]versionEntry
}

// versionEntry is the result for a file in one state.
type versionEntry struct {
	info     os.FileInfo
	versions []string
}

// get returns the versions of a binary in the given state, nil if VERSION has not been run with it.
func (c *versionCache) get(binary string, info os.FileInfo) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[binary]
	if !ok || !os.SameFile(e.info, info) || e.info.Size() != info.Size() || !e.info.ModTime().Equal(info.ModTime()) {
		return nil
	}
	return e.versions
}

func (c *versionCache) put(binary string, info os.FileInfo, versions []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[string]versionEntry{}
	}
	c.entries[binary] = versionEntry{info, versions}
}

// Versions returns the CNI versions that a binary supports, in the order in which it reported them;
// nil if VERSION has not been run since the binary changed. It runs nothing.
func (r *Runner) Versions(binary string) []string {
	info, err := os.Stat(binary)
	if err != nil {
		return nil
	}
	return slices.Clone(r.versions.get(binary, info))
}

// negotiate returns the highest CNI version that the library and the plugin both support.
// Concurrent callers share one VERSION call, which continues when one of them leaves.
func (r *Runner) negotiate(ctx context.Context, pluginType, binary string) (string, error) {
	info, err := os.Stat(binary)
	if err != nil {
		return "", fmt.Errorf("plugin %s: %w", pluginType, err)
	}
	supported := r.versions.get(binary, info)
	if supported == nil {
		if supported, err = r.queryVersions(ctx, pluginType, binary, info); err != nil {
			return "", err
		}
	}
	ours := version.All.SupportedVersions()
	for _, v := range slices.Backward(ours) {
		if slices.Contains(supported, v) {
			return v, nil
		}
	}
	return "", fmt.Errorf("plugin %s (%s) supports the CNI versions %q; expected one of %q", pluginType, binary, supported, ours)
}

// queryVersions runs VERSION, or waits for the call that runs it now, and keeps the result.
func (r *Runner) queryVersions(ctx context.Context, pluginType, binary string, info os.FileInfo) ([]string, error) {
	key := fmt.Sprintf("%s %d %s", binary, info.Size(), info.ModTime().Format(time.RFC3339Nano))
	done := r.versions.calls.DoChan(key, func() (any, error) {
		versions, err := r.runVersion(context.WithoutCancel(ctx), pluginType, binary)
		if err == nil {
			r.versions.put(binary, info, versions)
		}
		return versions, err
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

func (r *Runner) runVersion(ctx context.Context, pluginType, binary string) ([]string, error) {
	x := r.execution(call.VerbVersion, call.Call{Invocation: call.Invocation{Plugin: pluginType}})
	versions, err := x.version(ctx, binary)
	return versions, x.report(err)
}

// version runs VERSION. A plugin from before CNI 0.2.0 refuses that verb with a fixed text, and
// supports 0.1.0.
func (x *execution) version(ctx context.Context, binary string) ([]string, error) {
	// Plugins built with an old CNI skeleton require all variables for every verb.
	dummy := call.Invocation{NetNS: "dummy", IfName: "dummy", Path: "dummy"}
	stdin := fmt.Appendf(nil, `{"cniVersion":%q}`, version.Current())
	stdout, err := x.exec(ctx, input{binary, cniEnv(x.verb, dummy, ""), stdin})
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

// atLeast reports whether a CNI version is want or later. One that cannot be parsed is earlier than
// any.
func atLeast(got, want string) bool {
	ok, err := version.GreaterThanOrEqualTo(got, want)
	return err == nil && ok
}
