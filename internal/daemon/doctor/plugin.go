package doctor

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
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

// checkPluginState checks that the directory in which a plugin keeps its state is writable and the
// one that the plugin of the pods uses.
func checkPluginState(o *Observations, p pool, r *report) {
	d, key, problem := p.stateDir, p.plugin.StateKey, p.stateDir.writeProblem()
	switch {
	case d.path == "":
		r.ok("the plugin's state is not checked: its profile names no directory")
	case !filepath.IsAbs(d.path):
		r.fail("name an absolute path", "ipam.%s is %q: a relative path depends on the working directory of the plugin, so pods and daemon may use different directories", key, d.path)
	case problem != "":
		r.fail("give the daemon's user, as which the plugin runs, write permission, and mount the directory writable", "%s (ipam.%s): %s", d.path, key, problem)
	default:
		state, remedy, text := d.shared(o.Config.InPod, p.otherLeases(o))
		r.add(state, remedy, "%s is writable; %s", d.path, text)
	}
}

// otherLeases returns the number of leases that belong neither to the daemon nor to `profile try`. Those
// of containers that the daemon serves have the runtime's container IDs, so only its list names them.
func (p pool) otherLeases(o *Observations) int {
	if p.network.ServesContainers && (o.StatusErr != nil || o.ListErr != nil) {
		return 0 // unknown
	}
	n := 0
	for _, l := range p.store.leases {
		own := containerid.Match(l.ContainerID) || explains(o.Before, p.network.Name, l) || explains(o.After, p.network.Name, l)
		if !own && !ofProfileTry(l) {
			n++
		}
	}
	return n
}

const sameDirRemedy = "mount the host's directory of this path into the daemon's container (hostPath) under the same path, and name it in the CNI configuration"

// shared judges whether the plugin of the pods uses the same directory, if that is visible.
// otherLeases is the number of its leases that are not the daemon's.
func (d directory) shared(inPod bool, otherLeases int) (state State, remedy, text string) {
	source := d.source()
	switch {
	case otherLeases > 0:
		return OK, "", fmt.Sprintf("it is that of the pods: it has %d leases of others", otherLeases)
	case !inPod:
		return OK, "", "doctor does not run in a pod, so it is the host's"
	case inEmptyDir(d.mount):
		return Error, sameDirRemedy, "it is in an emptyDir, which the plugin of the pods does not use: pods would get the same addresses"
	case source != "" && !strings.HasSuffix(d.at, source) && !strings.HasSuffix(source, d.at):
		return Warning, "make sure that the plugin of the pods uses the same directory: " + sameDirRemedy,
			fmt.Sprintf("it is mounted from %q of its file system, and it is unknown whether pods use that", source)
	}
	return OK, "", "it is unknown whether pods use it: no pod has an address yet"
}

// notLocal returns the addresses that are not local in the network namespace of a path. The error is
// why that is unknown, such as a missing CAP_SYS_ADMIN.
func notLocal(path string, ips []netip.Addr) ([]netip.Addr, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE) // this thread is there only meanwhile
	if err != nil {
		return nil, err
	}
	defer h.Close()
	local := func(ip netip.Addr) bool {
		routes, err := h.RouteGet(ip.AsSlice()) // the error is that there is no route
		return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
	}
	return slices.DeleteFunc(slices.Clone(ips), local), nil
}

// releasesFromAddress reports whether DEL of the pool's plugin sends the release of an address from it
// (docs/reference/profiles.md, Profile fields, releaseFromAddress).
func (p pool) releasesFromAddress() bool {
	return p.confErr == nil && p.plugin.Profile.ReleaseFromAddress && p.plugin.NetNS != ""
}

// checkReleases checks that CNI_NETNS can send from each IPv4 address that the pool holds. Pods are left out: DEL runs in
// their own namespaces, which have the addresses.
func checkReleases(o *Observations, p pool, r *report) {
	var held []netip.Addr
	for _, a := range o.Before {
		for _, at := range a.Addresses {
			ip, err := netip.ParseAddr(at.IP)
			if err == nil && ip.Is4() && a.Pool == p.name && !attachment.OfContainer(a.Owner) {
				held = append(held, ip)
			}
		}
	}
	ns := p.plugin.NetNS
	if len(held) == 0 {
		r.ok("DEL needs each address to be local in %s, which is checked once one is held", ns)
		return
	}
	switch missing, err := notLocal(ns, held); {
	case err != nil:
		r.ok("DEL needs each address to be local in %s, which was not checked: %s; entering it needs CAP_SYS_ADMIN: run doctor as root on the host", ns, err)
	case len(missing) > 0:
		r.warn("make the server's range local there, without ARP for it (docs/reference/plugins.md, dhcp); dhcp before v1.10.0 does not need it",
			"%d of %d held addresses are not local in %s, such as %s: the DHCP server does not learn of a release, and the lease stays there until it expires", len(missing), len(held), ns, missing[0])
	default:
		r.ok("all %d held addresses are local in %s, so that DEL can release them", len(held), ns)
	}
}
