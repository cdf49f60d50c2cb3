package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// Pool is what was seen of one pool and the plugin behind it.
type Pool struct {
	app.Inspection
	// Served is the network with which the sidecar serves the pool; empty for none.
	Served string
	// GuardIsOther tells that Guard, if there is one, is not the sidecar of the state folder.
	GuardIsOther bool
	// State is where the plugin keeps its state.
	State PluginState
}

// findings are those of the pool as far as the steps before let one look.
func (p Pool) findings() []Finding {
	all := p.conflist()
	if p.ConfErr != nil {
		return all
	}
	found := p.plugin()
	all = append(all, found...)
	if Worst(found) == OK {
		found = p.versions()
		all = append(all, found...)
	}
	all = append(all, p.gc()...)
	all = append(all, p.guard()...)
	if !p.known() {
		return all
	}
	all = append(all, p.netns()...)
	all = append(all, p.State.findings(p.Pool, p.Plugin.StateErr)...)
	if p.Plugin.Err != nil && Worst(all) != Error {
		all = append(all, p.finding(CheckPlugin, Error, "mend what it names", "%s", p.Plugin.Err))
	}
	return all
}

// known tells whether it is known what the plugin is.
func (p Pool) known() bool { return p.ConfErr == nil && p.Plugin.Profile.Type != "" }

func (p Pool) finding(c Check, state State, do, format string, args ...any) Finding {
	return Finding{Check: c, Pool: p.Pool, State: state, Seen: fmt.Sprintf(format, args...), Do: do}
}

// conflist is whether the pool has a network that delegates IPAM.
func (p Pool) conflist() []Finding {
	switch {
	case p.ConfErr == nil:
		return []Finding{p.finding(CheckConflist, OK, "", "%s: network %q delegates to %s", p.Network.File, p.Network.Name, p.Network.IPAMType)}
	case p.Served != "":
		return []Finding{p.finding(CheckConflist, Warning, "mend the file before the sidecar is started again",
			"the sidecar goes on with network %q as it was, a new start would find none, and the plugin was not looked at: %s", p.Served, p.ConfErr)}
	}
	return []Finding{p.finding(CheckConflist, Error, "write the CNI configuration, or name it with --cni-conf-dir, --cni-conf-file or --cni-network", "%s", p.ConfErr)}
}

// plugin is whether there is an executable that this machine can run.
func (p Pool) plugin() []Finding {
	switch {
	case !p.known():
		return []Finding{p.finding(CheckPlugin, Error, "mend what it names", "%s", p.Plugin.Err)}
	case p.Plugin.FindErr != nil:
		return []Finding{p.finding(CheckPlugin, Error, "install the plugin, or name its folder with --cni-bin-dir; in a pod mount it from the host", "%s", p.Plugin.FindErr)}
	case neverRan(p.Plugin.VersionErr):
		return []Finding{p.finding(CheckPlugin, Error, "install a statically linked build for this machine, with mode 0755", "%s: %s", p.Plugin.Binary, p.Plugin.VersionErr)}
	}
	return []Finding{p.finding(CheckPlugin, OK, "", "%s can be run", p.Plugin.Binary)}
}

// neverRan tells whether a plugin could not be started.
func neverRan(err error) bool {
	var failed *call.Error
	return errors.As(err, &failed) && failed.Outcome == call.NotStarted
}

// versions is whether plugin and sidecar have a CNI version in common.
func (p Pool) versions() []Finding {
	if p.Plugin.VersionErr != nil {
		return []Finding{p.finding(CheckVersions, Error, "install a plugin that answers VERSION with a version that is known here", "%s: %s", p.Plugin.Binary, p.Plugin.VersionErr)}
	}
	return []Finding{p.finding(CheckVersions, OK, "", "%s is used; %s knows %s", p.Plugin.CNIVersion, p.Plugin.Plugin, strings.Join(p.Plugin.Versions, ", "))}
}

// netns is whether plugins are kept out of our own network namespace.
func (p Pool) netns() []Finding {
	switch {
	case p.NetNSErr != nil:
		return []Finding{p.finding(CheckNetNS, Error, "leave --cni-netns unset, or give it what the text says", "%s", p.NetNSErr)}
	case p.Plugin.NetNSErr != nil:
		return []Finding{p.finding(CheckNetNS, Error, "make the namespace, or name it with --cni-netns (docs/plugins.md, Network namespaces)", "%s", p.Plugin.NetNSErr)}
	}
	return []Finding{p.finding(CheckNetNS, OK, "", "CNI_NETNS is %q, which is not our own", p.Plugin.NetNS)}
}

// guard is whether another sidecar serves the network.
func (p Pool) guard() []Finding {
	switch {
	case p.Guard != "" && p.GuardIsOther:
		return []Finding{p.finding(CheckGuard, Error, "stop that one or this one, or give this one a --node-name or a network of its own",
			"network %q is served on this node by a sidecar that is not that of this state folder, or hangs: %s", p.Network.Name, p.Guard)}
	case p.Guard != "":
		return []Finding{p.finding(CheckGuard, OK, "", "only the sidecar of this state folder serves network %q (%s)", p.Network.Name, p.Guard)}
	}
	return []Finding{p.finding(CheckGuard, OK, "", "nobody serves network %q in this network namespace", p.Network.Name)}
}
