package delegate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sync/singleflight"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// versionCache keeps what VERSION answered, by binary. A failure is not kept.
type versionCache struct {
	asking singleflight.Group
	fileFacts[[]string]
}

// Versions are the CNI versions that a binary said it knows, lowest first as it
// said them; none if it was not asked yet or has changed since. It is not asked now.
func (r *Runner) Versions(binary string) []string {
	info, err := os.Stat(binary)
	if err != nil {
		return nil
	}
	known, _ := r.versions.get(binary, info)
	return slices.Clone(known)
}

// negotiate returns the highest CNI version that the library and the plugin
// both know. Askers at the same time share one VERSION call, which goes on
// when one of them leaves.
func (r *Runner) negotiate(ctx context.Context, pluginType, binary string) (string, error) {
	info, err := os.Stat(binary)
	if err != nil {
		return "", fmt.Errorf("plugin %s: %w", pluginType, err)
	}
	supported, ok := r.versions.get(binary, info)
	if !ok {
		if supported, err = r.askVersion(ctx, pluginType, binary, info); err != nil {
			return "", err
		}
	}
	ours := version.All.SupportedVersions()
	for _, v := range slices.Backward(ours) {
		if slices.Contains(supported, v) {
			return v, nil
		}
	}
	return "", fmt.Errorf("plugin %s (%s) supports the CNI versions %q, none of which is known here: %q", pluginType, binary, supported, ours)
}

func (r *Runner) askVersion(ctx context.Context, pluginType, binary string, info os.FileInfo) ([]string, error) {
	key := fmt.Sprintf("%s %d %s", binary, info.Size(), info.ModTime().Format(time.RFC3339Nano))
	answer := r.versions.asking.DoChan(key, func() (any, error) {
		versions, err := r.runVersion(context.WithoutCancel(ctx), pluginType, binary)
		if err == nil {
			r.versions.put(binary, info, versions)
		}
		return versions, err
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("plugin %s VERSION: %w", pluginType, ctx.Err())
	case a := <-answer:
		if a.Err != nil {
			return nil, a.Err
		}
		return a.Val.([]string), nil
	}
}

// runVersion asks VERSION once. A plugin of before CNI 0.2.0 refuses that verb
// in fixed words, and supports 0.1.0.
func (r *Runner) runVersion(ctx context.Context, pluginType, binary string) ([]string, error) {
	x := r.execution(call.VerbVersion, call.Call{Invocation: call.Invocation{Plugin: pluginType}})
	versions, err := x.supported(ctx, binary)
	return versions, x.called(err)
}

func (x *execution) supported(ctx context.Context, binary string) ([]string, error) {
	// Plugins built with an old CNI skeleton want all variables for every verb.
	env := environment{
		common: x.runner.env, verb: x.verb,
		netns: "dummy", ifName: "dummy", path: "dummy",
	}
	stdin := fmt.Appendf(nil, `{"cniVersion":%q}`, version.Current())
	stdout, err := x.exec(ctx, binary, stdin, env.list())
	var refused *call.Error
	if errors.As(err, &refused) && refused.Msg == "unknown CNI_COMMAND: VERSION" {
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

// atLeast compares CNI versions; one that cannot be read is older than any.
func atLeast(got, want string) bool {
	ok, err := version.GreaterThanOrEqualTo(got, want)
	return err == nil && ok
}
