package doctor

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// checkCNIConfig checks that a pool has a network that delegates IPAM, and not by chance that of another program: where
// Cilium has no file, podman's is the first one.
func checkCNIConfig(o *Observations, p pool, r *report) {
	chosen := o.Config.CNIConfFile == "" && o.Config.Pools[p.name] == ""
	switch by := delegating(p.network); {
	case p.confErr == nil && chosen && by != "" && by != ciliumCNI:
		r.warn("name the network by --cni-network if it is meant; otherwise write the CNI configuration, or set --cni-conf-file",
			"%s: network %q is of %s, not of %s, and is used because no file before it delegates IPAM", p.network.File, p.network.Name, by, ciliumCNI)
	case p.confErr == nil:
		r.ok("%s: network %q delegates to %s", p.network.File, p.network.Name, p.network.IPAMType)
	case p.status.Network != "":
		r.warn("fix the file before the next start of the daemon",
			"the daemon continues with network %q as last read, but a start would find none, so its plugin was not checked: %s", p.status.Network, p.confErr)
	default:
		r.fail("write the CNI configuration, or set --cni-conf-dir, --cni-conf-file or --cni-network. If delegated-ipam-network writes it: `curl http://127.0.0.1:9968/readyz` on the node has the reason, such as a Node without podCIDRs (docs/install/ranges.md, Not ready)", "%s", p.confErr)
	}
}

// checkPlugin reports the checks of readiness of a pool.
func checkPlugin(_ *Observations, p pool, r *report) {
	s := p.status
	for _, problem := range []string{s.Error, s.NotReady} {
		if problem != "" {
			r.fail("correct the file, the option or the installation of the plugin, which is to be statically linked, with mode 0755, and in a pod mounted from the host (docs/troubleshooting.md)", "%s", problem)
		}
	}
	if s.ProgramDiffers != "" {
		r.warn("install the program of the same version, or choose one with --host-local", "%s", s.ProgramDiffers)
	}
	if s.Embedded != "" {
		r.clean("%s is run in the daemon's own process: %s", s.Plugin, s.Embedded)
	} else {
		r.clean("%s can be used, with CNI version %s", s.Binary, s.CniVersion)
	}
}

// checkRuntimeGC checks that a GC by the container runtime cannot free the daemon's addresses.
// The runtime names only its own attachments, and a plugin frees all others (CNI spec
// section 2, "GC"). It calls GC if the configuration has version 1.1.0 or above and does
// not set disableGC (libcni, GCNetworkList), and reaches the plugin if the one that delegates passes it
// on. Whether the plugin has one is unknown: host-local lists the same versions with and without it.
func checkRuntimeGC(_ *Observations, p pool, r *report) {
	configured := p.network.CNIVersion
	by := delegating(p.network)
	switch upTo := withoutGC[by]; {
	case p.network.DisableGC:
		r.ok("disableGC is set in %s", p.network.File)
	case configured == "": // CNI spec section 1, "cniVersion"
		r.ok("the configuration has CNI version 0.1.0 (the default), which lacks GC")
	case !hasGC(configured):
		r.ok("the configuration has CNI version %s, which lacks GC", configured)
	case p.network.ServesContainers:
		r.ok("a GC of network %q goes through the daemon, which keeps its addresses", p.network.Name)
	case upTo != "":
		r.ok("%s does not pass a GC on to %s (known up to %s)", by, p.network.IPAMType, upTo)
	case len(p.status.PluginVersions) > 0 && !slices.ContainsFunc(p.status.PluginVersions, hasGC):
		r.ok("%s supports no CNI version with GC", p.network.IPAMType)
	default:
		r.warn(`set "disableGC": true beside "name" in the file`,
			"%s has CNI version %s without disableGC: a GC by the container runtime does not name the daemon's attachments, so %s may free their addresses", p.network.File, configured, p.network.IPAMType)
	}
}

// ciliumCNI is Cilium's CNI plugin.
const ciliumCNI = "cilium-cni"

// delegating returns the type of the plugin that delegates IPAM.
func delegating(n call.Network) string {
	var object struct{ Type string }
	_ = json.Unmarshal(n.PluginConfig, &object) // for an empty one the cases of every plugin hold
	return object.Type
}

// withoutGC are the plugins that delegate IPAM and do not pass GC on, with the last version that was read.
var withoutGC = map[string]string{ciliumCNI: "v1.20", "bridge": "v1.10.0"}

func hasGC(v string) bool { return call.Invocation{CNIVersion: v}.HasGC() }

// checkPluginFiles checks that the files exist without which the plugin does not work, by its profile
// (docs/reference/profiles.md, Profile fields, requires).
func checkPluginFiles(_ *Observations, p pool, r *report) {
	for _, m := range p.plugin.Missing {
		key := ""
		if m.Key != "" {
			key = " (or name another with ipam." + m.Key + ")"
		}
		r.fail("create the "+string(m.Kind)+", or mount it into the container in which the plugin runs"+key,
			"plugin %s needs a %s that does not exist: %s; %s", p.network.IPAMType, m.Kind, strings.Join(m.Paths, " or "), m.Why)
	}
	r.clean("nothing that the plugin needs is missing, by its profile")
}
