package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/containerid"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
)

// PluginState is what was seen of the folder in which a plugin keeps its state.
type PluginState struct {
	// Folder has an empty Path if the plugin keeps no state in files.
	Folder
	// Key is the key of ipam that names it.
	Key string
	// InPod tells that one looks from within a pod.
	InPod bool
	// Host says what the host's folder of this path is.
	Host HostFolder
	// Others is how many addresses are held there for container IDs that are not ours.
	Others int
}

// HostFolder is how the host's folder of the same path compares with the one seen.
type HostFolder string

const (
	// HostUnknown: the host's files cannot be seen.
	HostUnknown HostFolder = ""
	// HostSame: it is the same folder.
	HostSame HostFolder = "same"
	// HostOther: it is another one, or there is none.
	HostOther HostFolder = "other"
)

func lookAtPluginState(dir, key string, inPod bool) PluginState {
	if dir == "" {
		return PluginState{}
	}
	s := PluginState{Folder: Folder{Path: dir}, Key: key, InPod: inPod}
	if !filepath.IsAbs(dir) {
		return s
	}
	s.Folder = lookAtFolder(dir)
	if inPod {
		s.Host = compareWithHost("/proc", s.At)
	}
	return s
}

// initialPIDNamespace is the host's, by the number that the kernel gives it
// (include/linux/proc_ns.h, PROC_PID_INIT_INO). In another one process 1 is no
// process of the host.
const initialPIDNamespace = "pid:[4026531836]"

// compareWithHost looks at the host's folder through its process 1 in proc, which
// takes a pod with hostPID and the right to.
func compareWithHost(proc, path string) HostFolder {
	if ns, err := os.Readlink(filepath.Join(proc, "self/ns/pid")); err != nil || ns != initialPIDNamespace {
		return HostUnknown
	}
	root, err := unix.Open(filepath.Join(proc, "1/root"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return HostUnknown
	}
	defer unix.Close(root)
	var ours, theirs unix.Stat_t
	if unix.Stat(path, &ours) != nil {
		return HostUnknown
	}
	// The host's links are followed as on the host: from its root, not from ours.
	fd, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if errors.Is(err, fs.ErrNotExist) {
		return HostOther
	}
	if err != nil {
		return HostUnknown
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &theirs); err != nil {
		return HostUnknown
	}
	if ours.Dev == theirs.Dev && ours.Ino == theirs.Ino {
		return HostSame
	}
	return HostOther
}

// withLeases counts those who are not the sidecar.
func (s PluginState) withLeases(all []hostlocal.Lease) PluginState {
	s.Others = 0
	for _, l := range all {
		if !containerid.Match(l.ContainerID) {
			s.Others++
		}
	}
	return s
}

const sameFolderAdvice = "mount the host's folder of this very path into the sidecar's container (hostPath), and let the configuration name that"

// findings judges the folder; refused is why the sidecar does not use it.
func (s PluginState) findings(pool string, refused error) []Finding {
	one := func(state State, do, format string, args ...any) []Finding {
		return []Finding{{Check: CheckPluginState, Pool: pool, State: state, Seen: fmt.Sprintf(format, args...), Do: do}}
	}
	switch {
	case s.Path == "":
		return one(OK, "", "not looked at: the plugin's profile names no folder of its state")
	case !filepath.IsAbs(s.Path):
		return one(Error, "name an absolute path", "ipam.%s is %q: what a relative path means depends on who runs the plugin, so pods and sidecar may use different folders", s.Key, s.Path)
	case refused != nil:
		return one(Error, sameFolderAdvice, "%s", refused)
	}
	if why := s.writable(); why != "" {
		return append(one(Error, "give the sidecar's user the right to write there (the plugin runs as that user), and mount it writable", "%s (ipam.%s): %s", s.Path, s.Key, why), s.room(pool)...)
	}
	state, do, shared := s.shared()
	return append(one(state, do, "%s can be written to; %s", s.Path, shared), s.room(pool)...)
}

// shared says whether the plugin processes that serve the pods use the same folder,
// as far as that can be seen from here.
func (s PluginState) shared() (state State, do, seen string) {
	source := s.Mount.sourceOf(s.At)
	switch {
	case s.Others > 0:
		return OK, "", fmt.Sprintf("it is that of the pods: it holds %d addresses of others", s.Others)
	case !s.InPod:
		return OK, "", "this is no pod, so it is that of the host"
	case s.Host == HostSame:
		return OK, "", "it is the host's folder of this path"
	case s.Host == HostOther:
		return Error, sameFolderAdvice, "the host's folder of this path is another one: pods would get the same addresses"
	case s.Mount.inEmptyDir():
		return Error, sameFolderAdvice, "it is in an emptyDir, which the plugin of the pods does not use: pods would get the same addresses"
	case source != "" && !strings.HasSuffix(s.At, source) && !strings.HasSuffix(source, s.At):
		return Warning, "see that the plugin of the pods uses the same folder: " + sameFolderAdvice,
			fmt.Sprintf("it is mounted from %q of its file system, and whether pods use that could not be told", source)
	}
	return OK, "", "whether pods use it could not be told from here: no pod has an address yet"
}
