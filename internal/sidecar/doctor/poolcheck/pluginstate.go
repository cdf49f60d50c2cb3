package poolcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// PluginState checks that the directory in which a plugin keeps its state is writable and the
// one that the plugin of the pods uses.
var PluginState = check.Check{Name: "plugin-state", Run: func(o *check.Observations) []check.Finding {
	var all []check.Finding
	for _, p := range o.Pools {
		if p.Known() {
			s := collectPluginState(p.StateDir, o.Config.InPod)
			s.otherLeases = otherLeases(o.Stores, p.Name)
			all = append(all, s.finding(p))
		}
	}
	return all
}}

// pluginState is the directory in which a plugin keeps its state.
type pluginState struct {
	check.Dir
	// inPod means that this process runs in a pod.
	inPod bool
	// host compares it with the host's directory of the same path.
	host hostDir
	// otherLeases is the number of its leases for container IDs that are not the sidecar's.
	otherLeases int
}

// hostDir is the result of the comparison with the host's directory of the same path.
type hostDir string

const (
	// hostUnknown: the host's files are not visible.
	hostUnknown hostDir = ""
	// hostSame: the host has the same directory.
	hostSame hostDir = "same"
	// hostOther: the host has another directory or none.
	hostOther hostDir = "other"
)

func collectPluginState(f check.Dir, inPod bool) pluginState {
	s := pluginState{Dir: f, inPod: inPod}
	if inPod && filepath.IsAbs(f.Path) {
		s.host = compareWithHost("/proc", f.At)
	}
	return s
}

// otherLeases returns the number of leases in the store of a pool that are neither the sidecar's
// nor those of a trial.
func otherLeases(stores []check.Store, pool string) int {
	n := 0
	for _, s := range stores {
		for _, l := range s.Leases {
			if s.Pool == pool && !containerid.Match(l.ContainerID) && !ofTrial(l) {
				n++
			}
		}
	}
	return n
}

// initialPIDNamespace is the PID namespace of the host, by its fixed number
// (include/linux/proc_ns.h, PROC_PID_INIT_INO). In another one, process 1 is not the
// host's.
const initialPIDNamespace = "pid:[4026531836]"

// compareWithHost compares a directory with that of the host's process 1 in proc, which needs
// hostPID and sufficient privileges.
func compareWithHost(proc, path string) hostDir {
	if ns, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err != nil || ns != initialPIDNamespace {
		return hostUnknown
	}
	root, err := unix.Open(filepath.Join(proc, "1/root"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return hostUnknown
	}
	defer unix.Close(root)
	var own, host unix.Stat_t
	if unix.Stat(path, &own) != nil {
		return hostUnknown
	}
	// Symbolic links of the host start at its root, not at that of this process.
	fd, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if errors.Is(err, fs.ErrNotExist) {
		return hostOther
	}
	if err != nil {
		return hostUnknown
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &host); err != nil {
		return hostUnknown
	}
	if own.Dev == host.Dev && own.Ino == host.Ino {
		return hostSame
	}
	return hostOther
}

const sameDirRemedy = "mount the host's directory of this path into the sidecar's container (hostPath) under the same path, and name it in the CNI configuration"

func (s pluginState) finding(p check.Pool) check.Finding {
	key := p.Plugin.StateKey
	switch {
	case p.Plugin.StateErr != nil && (s.Path == "" || filepath.IsAbs(s.Path)):
		return p.Fail(sameDirRemedy, "%s", p.Plugin.StateErr)
	case s.Path == "":
		return p.Pass("the plugin's state is not checked: its profile names no directory")
	case !filepath.IsAbs(s.Path):
		return p.Fail("name an absolute path", "ipam.%s is %q: a relative path depends on the working directory of the plugin, so pods and sidecar may use different directories", key, s.Path)
	}
	if problem := s.WriteProblem(); problem != "" {
		return p.Fail("give the sidecar's user, as which the plugin runs, write permission, and mount the directory writable", "%s (ipam.%s): %s", s.Path, key, problem)
	}
	state, remedy, text := s.shared()
	return check.Finding{State: state, Remedy: remedy, Message: fmt.Sprintf("%s is writable; %s", s.Path, text)}.OfPool(p.Name)
}

// shared judges whether the plugin of the pods uses the same directory, as far as that is
// visible.
func (s pluginState) shared() (state check.State, remedy, text string) {
	source := check.SourceOf(s.Mount, s.At)
	switch {
	case s.otherLeases > 0:
		return check.OK, "", fmt.Sprintf("it is that of the pods: it has %d leases of others", s.otherLeases)
	case !s.inPod:
		return check.OK, "", "doctor does not run in a pod, so it is the host's"
	case s.host == hostSame:
		return check.OK, "", "it is the host's directory of this path"
	case s.host == hostOther:
		return check.Error, sameDirRemedy, "the host's directory of this path is another one: pods would get the same addresses"
	case check.InEmptyDir(s.Mount):
		return check.Error, sameDirRemedy, "it is in an emptyDir, which the plugin of the pods does not use: pods would get the same addresses"
	case source != "" && !strings.HasSuffix(s.At, source) && !strings.HasSuffix(source, s.At):
		return check.Warning, "make sure that the plugin of the pods uses the same directory: " + sameDirRemedy,
			fmt.Sprintf("it is mounted from %q of its file system, and it is unknown whether pods use that", source)
	}
	return check.OK, "", "it is unknown whether pods use it: no pod has an address yet"
}
