package doctor

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/nodelock"
)

// checkCNIConfig checks that a pool has a network that delegates IPAM.
func checkCNIConfig(o *Observations, p pool, r *report) {
	file := o.Config.CNIConfFile
	_, err := os.Stat(file)
	switch served := served(o.Status, p.name); {
	case p.confErr == nil:
		r.ok("%s: network %q delegates to %s", p.network.File, p.network.Name, p.network.IPAMType)
	case served != "":
		r.warn("fix the file before the next start of the sidecar",
			"the sidecar continues with network %q as last read, but a start would find none, so its plugin was not checked: %s", served, p.confErr)
	case file != "" && errors.Is(err, fs.ErrNotExist):
		r.fail("write the file. If delegated-ipam-network writes it: `curl http://127.0.0.1:9968/readyz` on the node has the reason, such as a Node without podCIDRs (docs/install/ranges.md, Not ready)", "%s", p.confErr)
	default:
		r.fail("write the CNI configuration, or set --cni-conf-dir, --cni-conf-file or --cni-network", "%s", p.confErr)
	}
}

// served returns the network with which the running sidecar serves a pool; empty for none.
func served(status *models.DelegatedIPAMStatus, pool string) string {
	if status != nil {
		for _, p := range status.Pools {
			if p.Pool == pool {
				return p.Network
			}
		}
	}
	return ""
}

// checkPlugin checks that each pool's plugin exists, can be executed on this machine, and is not
// rejected by its profile.
func checkPlugin(o *Observations, r *report) {
	if o.poolsErr != nil {
		r.fail("correct the option: the sidecar does not start with it", "%s", o.poolsErr)
	}
	eachPool(pool.configured, checkPoolPlugin)(o, r)
}

func checkPoolPlugin(_ *Observations, p pool, r *report) {
	switch {
	case !p.known():
		r.fail("fix the cause", "%s", p.plugin.Err)
		return
	case p.plugin.FindErr != nil:
		r.fail("install the plugin, or add its directory to --cni-bin-dir; in a pod mount it from the host", "%s", p.plugin.FindErr)
	case !p.executed():
		r.fail("install a statically linked build for this machine, with mode 0755", "%s: %s", p.plugin.Binary, p.plugin.VersionErr)
	case p.plugin.Embedded != "":
		r.ok("%s is run in the sidecar's own process: %s", p.plugin.Plugin, p.plugin.Embedded)
	default:
		r.ok("%s can be executed", p.plugin.Binary)
	}
	if p.plugin.ConfigErr != nil {
		r.fail("correct the file; until then the plugin refuses ADD, CHECK and DEL, and held addresses stay", "%s", p.plugin.ConfigErr)
	}
	if p.plugin.ProgramErr != nil {
		r.warn("install the program of the same version, or choose one with --host-local", "%s", p.plugin.ProgramErr)
	}
	if p.plugin.AddressErr != nil {
		r.fail("correct the file or the option; until then no owner gets an address", "%s", p.plugin.AddressErr)
	}
	// An error of a step, of which the error of the whole is a consequence, is reported with that step.
	if p.plugin.Err != nil && errors.Join(p.plugin.FindErr, p.plugin.VersionErr, p.plugin.StateErr, p.plugin.NetNSErr) == nil {
		r.fail("fix the cause", "%s", p.plugin.Err)
	}
}

// checkCNIVersions checks that a pool's plugin and the sidecar have a CNI version in common.
func checkCNIVersions(_ *Observations, p pool, r *report) {
	if p.plugin.VersionErr != nil {
		r.fail("install a plugin that responds to VERSION with a version that delegated-ipam supports", "%s: %s", p.plugin.Binary, p.plugin.VersionErr)
		return
	}
	r.ok("CNI version %s is used; %s supports %s", p.plugin.CNIVersion, p.plugin.Plugin, strings.Join(p.plugin.Versions, ", "))
}

// checkRuntimeGC checks that a GC by the container runtime cannot free the sidecar's addresses.
// The runtime names only its own attachments, and a plugin frees all others (CNI spec
// section 2, "GC"). It calls GC if the configuration has version 1.1.0 or above and does
// not set disableGC (libcni, GCNetworkList), and reaches the plugin if the one that delegates passes it
// on. Whether the plugin has one is unknown: host-local lists the same versions with and without it.
func checkRuntimeGC(_ *Observations, p pool, r *report) {
	configured := p.network.CNIVersion
	var object struct{ Type string }
	_ = json.Unmarshal(p.network.PluginConfig, &object) // for an empty one the cases of every plugin hold
	switch upTo := withoutGC[object.Type]; {
	case p.network.DisableGC:
		r.ok("disableGC is set in %s", p.network.File)
	case configured == "": // CNI spec section 1, "cniVersion"
		r.ok("the configuration has CNI version 0.1.0 (the default), which lacks GC")
	case !hasGC(configured):
		r.ok("the configuration has CNI version %s, which lacks GC", configured)
	case p.network.ServesContainers:
		r.ok("a GC of network %q goes through the sidecar, which keeps its addresses", p.network.Name)
	case upTo != "":
		r.ok("%s does not pass a GC on to %s (known up to %s)", object.Type, p.plugin.Plugin, upTo)
	case len(p.plugin.Versions) > 0 && !slices.ContainsFunc(p.plugin.Versions, hasGC):
		r.ok("%s supports no CNI version with GC", p.plugin.Plugin)
	default:
		r.warn(`set "disableGC": true beside "name" in the file`,
			"%s has CNI version %s without disableGC: a GC by the container runtime does not name the sidecar's attachments, so %s may free their addresses", p.network.File, configured, p.plugin.Plugin)
	}
}

// withoutGC are the plugins that delegate IPAM and do not pass GC on, with the last version that was read.
var withoutGC = map[string]string{"cilium-cni": "v1.20", "bridge": "v1.10.0"}

func hasGC(v string) bool {
	ok, err := version.GreaterThanOrEqualTo(v, "1.1.0")
	return err == nil && ok
}

// checkNodeLock checks that no other sidecar serves the same network on this node.
func checkNodeLock(o *Observations, p pool, r *report) {
	switch {
	case p.lockHolder == "":
		r.ok("no sidecar in this network namespace serves network %q", p.network.Name)
	case nodelock.HolderHas(p.lockHolder, o.Config.StateDir):
		r.ok("only the sidecar of this state directory serves network %q (%s)", p.network.Name, p.lockHolder)
	default:
		r.fail("stop one of the two sidecars, or give this one its own --node-name or network",
			"network %q is served on this node by a sidecar with another state directory, or by one that hangs: %s", p.network.Name, p.lockHolder)
	}
}

// checkNetNS checks that a plugin does not work in the sidecar's own network namespace, and can
// release addresses in another one.
func checkNetNS(_ *Observations, p pool, r *report) {
	switch {
	case p.netNSErr != nil:
		r.fail("leave --cni-netns unset, or correct it", "%s", p.netNSErr)
	case p.plugin.NetNSErr != nil:
		r.fail("create the namespace, or name it with --cni-netns (docs/reference/plugins.md, Network namespaces)", "%s", p.plugin.NetNSErr)
	default:
		r.ok("CNI_NETNS is %q, which is not the sidecar's own", p.plugin.NetNS)
		checkReleases(p, r)
	}
}

// checkPluginFiles checks that the files exist without which the plugin does not work, by its profile
// (docs/reference/profiles.md, Profile fields, requires).
func checkPluginFiles(_ *Observations, p pool, r *report) {
	for _, m := range p.plugin.Missing {
		key := ""
		if m.Key != "" {
			key = " (or name another with ipam." + m.Key + ")"
		}
		r.fail("create the "+string(m.Kind)+", or mount it into the container in which the plugin runs"+key,
			"plugin %s needs a %s that does not exist: %s; %s", p.plugin.Plugin, m.Kind, strings.Join(m.Paths, " or "), m.Why)
	}
	if r.clean() {
		r.ok("nothing that the plugin needs is missing, by its profile")
	}
}
