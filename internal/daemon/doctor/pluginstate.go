package doctor

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
)

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
