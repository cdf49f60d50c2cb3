package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

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
		host := hostUnknown
		if o.Config.InPod {
			host = compareWithHost("/proc", d.at)
		}
		state, remedy, text := d.shared(o.Config.InPod, host, p.otherLeases(o))
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
func (d directory) shared(inPod bool, host string, otherLeases int) (state State, remedy, text string) {
	source := d.source()
	switch {
	case otherLeases > 0:
		return OK, "", fmt.Sprintf("it is that of the pods: it has %d leases of others", otherLeases)
	case !inPod:
		return OK, "", "doctor does not run in a pod, so it is the host's"
	case host == hostSame:
		return OK, "", "it is the host's directory of this path"
	case host == hostOther:
		return Error, sameDirRemedy, "the host's directory of this path is another one: pods would get the same addresses"
	case inEmptyDir(d.mount):
		return Error, sameDirRemedy, "it is in an emptyDir, which the plugin of the pods does not use: pods would get the same addresses"
	case source != "" && !strings.HasSuffix(d.at, source) && !strings.HasSuffix(source, d.at):
		return Warning, "make sure that the plugin of the pods uses the same directory: " + sameDirRemedy,
			fmt.Sprintf("it is mounted from %q of its file system, and it is unknown whether pods use that", source)
	}
	return OK, "", "it is unknown whether pods use it: no pod has an address yet"
}

// The results of compareWithHost: the host's files are not visible, the host has the same directory
// at the path, or it has another directory or none.
const hostUnknown, hostSame, hostOther = "unknown", "same", "other"

// initialPIDNamespace is the PID namespace of the host, by its fixed number
// (include/linux/proc_ns.h, PROC_PID_INIT_INO). In another one, process 1 is not the
// host's.
const initialPIDNamespace = "pid:[4026531836]"

// compareWithHost compares a directory with the same path of the host's process 1 in proc, which
// needs hostPID and sufficient privileges.
func compareWithHost(proc, path string) string {
	if ns, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err != nil || ns != initialPIDNamespace {
		return hostUnknown
	}
	root, err := unix.Open(filepath.Join(proc, "1/root"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return hostUnknown
	}
	defer unix.Close(root)
	// Symbolic links of the host start at its root, not at the root of this process.
	fd, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err == nil {
		defer unix.Close(fd)
	}
	var own, host unix.Stat_t
	switch {
	case unix.Stat(path, &own) != nil:
		return hostUnknown
	case errors.Is(err, fs.ErrNotExist):
		return hostOther
	case err != nil || unix.Fstat(fd, &host) != nil:
		return hostUnknown
	case own.Dev == host.Dev && own.Ino == host.Ino:
		return hostSame
	}
	return hostOther
}
