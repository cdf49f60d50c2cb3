package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

const (
	// noDir is a path below which no directory can be made: the executable of the plugin itself, even
	// if it is replaced meanwhile.
	noDir = "/proc/self/exe"
	// maxConfigFile bounds the configuration file in which a line is looked up, in bytes.
	maxConfigFile = 1 << 20
)

// acceptedConfig is a network configuration that a plugin accepts, and the state of the plugin's file.
type acceptedConfig struct{ binary, config string }

// CheckConfig returns why the plugin refuses the configuration of a network, of which inv is an
// invocation, with file and line; nil if it accepts it, or if that is unknown. It knows only plugins
// like host-local, of which a newer version may refuse what an older one accepts, also for DEL. It runs
// CHECK until the plugin accepts the configuration, then again when binary or configuration changes.
//
// What a runtime passes for one container interface does not count.
//
// The CHECK touches neither leases nor their lock: it has noDir as the plugin's directory, at which the
// plugin fails after it has accepted the rest. That would count as a refused call, so it is not counted.
func (r *Runner) CheckConfig(ctx context.Context, n call.Network, inv call.Invocation) error {
	if inv.Binary != "" {
		refused, _ := r.checkConfig(ctx, n, inv)
		return refused
	}
	config, err := withContainer(inv.Config, call.Container{})
	if err != nil {
		return nil // the configuration of an invocation can be parsed
	}
	if err := hostlocal.CheckConfig(config); err != nil {
		return refusedConfig(inv, n, err.Error())
	}
	return nil
}

func refusedConfig(inv call.Invocation, n call.Network, reason string) error {
	return fmt.Errorf("plugin %s refuses the configuration %s: %s", inv.Plugin, locate(n.File, reason), reason)
}

// ProgramDiffers returns why the program of a plugin that is embedded, which pods may use, does not do with the
// configuration of a network what the daemon does; nil if it does, or if there is none. It runs VERSION and the CHECK of
// CheckConfig.
func (r *Runner) ProgramDiffers(ctx context.Context, n call.Network, inv call.Invocation) error {
	if r.Embedded(inv.Plugin) == "" {
		return nil
	}
	path := r.installed(inv.Plugin)
	if r.hostLocalVersion(path) == "" { // none, or one that is not to be run
		return nil
	}
	ours := r.CheckConfig(ctx, n, inv)
	inv.Binary = path
	inv, err := r.atVersion(ctx, inv)
	if err != nil {
		return fmt.Errorf("%s, which pods may use, cannot be run: %w", path, err)
	}
	theirs, known := r.checkConfig(ctx, n, inv)
	switch {
	case !known:
	case ours == nil && theirs != nil:
		return fmt.Errorf("%s, which pods may use, refuses what the daemon accepts: %w", path, theirs)
	case ours != nil && theirs == nil:
		return fmt.Errorf("%s, which pods may use, accepts what the daemon refuses: %w", path, ours)
	}
	return nil
}

// checkConfig is CheckConfig for a program. known is false if it neither accepts nor refuses the configuration.
func (r *Runner) checkConfig(ctx context.Context, n call.Network, inv call.Invocation) (refused error, known bool) {
	state, err := fileState(inv.Binary)
	if err != nil || !inv.Profile.LikeHostLocal() || inv.VerifyBy() != profile.VerifyCheck {
		return nil, false
	}
	if inv.Config, err = withContainer(inv.Config, call.Container{}); err != nil {
		return nil, false // the configuration of an invocation can be parsed
	}
	inv.Args = ""
	config := acceptedConfig{state, string(inv.Config)}
	if last, _ := r.acceptedConfigs.Load(n.Name); last == any(config) {
		return nil, true
	}
	inv.ContainerID = "delegated-ipam-config-" + uuid.NewString()
	if inv.Config, err = withNoDir(inv); err != nil {
		return nil, false
	}
	// Without a container ID no lock of the state directory is needed, which doctor may not create.
	x := r.execution(call.VerbCheck, call.Call{Invocation: call.Invocation{Plugin: inv.Plugin, NetNS: inv.NetNS}})
	_, err = x.exec(ctx, input{inv.Binary, "", cniEnv(x.verb, inv, inv.Args), inv.Config})
	e, ok := errors.AsType[*call.Error](err)
	switch {
	case err == nil, call.IsLost(inv, err), ok && e.IsPluginRefusal() && strings.Contains(e.Msg, noDir):
		r.acceptedConfigs.Store(n.Name, config)
		return nil, true
	case ok && e.IsPluginRefusal():
		return refusedConfig(inv, n, e.Reason()), true
	}
	return nil, false
}

// AsConfigured returns a recorded invocation with the configuration that its network n has now, and without what a
// runtime has passed, if that differs and names the same store of a plugin like host-local: there container ID and
// interface alone identify an attachment, so that DEL and CHECK mean the same with both. Otherwise it returns false.
func (r *Runner) AsConfigured(ctx context.Context, inv call.Invocation, n call.Network) (call.Invocation, bool) {
	now, err := r.NewInvocation(ctx, n, inv.ContainerID, "")
	if err != nil || now.Plugin != inv.Plugin || bytes.Equal(now.Config, inv.Config) && now.Args == inv.Args {
		return inv, false
	}
	recorded, err := r.storeOf(inv)
	configured, errNow := r.storeOf(now)
	if err != nil || errNow != nil || recorded.Network != configured.Network || recorded.Dir != configured.Dir {
		return inv, false
	}
	inv.Config, inv.CNIVersion, inv.Capabilities, inv.Args = now.Config, now.CNIVersion, now.Capabilities, now.Args
	return inv, true
}

// withNoDir returns the configuration of an invocation with noDir as the directory of the plugin's state.
func withNoDir(inv call.Invocation) (json.RawMessage, error) {
	object, err := parsePluginObject(inv.Config)
	if err != nil {
		return nil, err
	}
	_, key := inv.Profile.StateDir(object["ipam"])
	if key == "" {
		return inv.Config, nil
	}
	return setKey(inv.Config, json.RawMessage(`"`+noDir+`"`), "ipam", key)
}

// locate returns the path of a configuration file with the number of the first line that has an
// address or prefix of a message about it, preferably the message's first; without such a line, the path.
func locate(file, message string) string {
	data, err := files.Read(file, maxConfigFile)
	if err != nil {
		return file
	}
	for _, p := range prefixesIn(message) {
		number := 0
		for line := range strings.Lines(string(data)) {
			if number++; slices.Contains(prefixesIn(line), p) {
				return fmt.Sprintf("%s:%d", file, number)
			}
		}
	}
	return file
}

// prefixesIn returns the prefixes in a text, and its addresses with their full length. As values they are
// equal in each of their textual forms.
func prefixesIn(text string) []netip.Prefix {
	var all []netip.Prefix
	for _, word := range strings.FieldsFunc(text, func(c rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF.:/", c) }) {
		if p, err := netip.ParsePrefix(word); err == nil {
			all = append(all, p)
		} else if ip, err := netip.ParseAddr(word); err == nil {
			all = append(all, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
		}
	}
	return all
}
