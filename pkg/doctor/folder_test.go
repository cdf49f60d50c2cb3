package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
)

// disk is a folder that is as it should be.
func disk() Folder {
	return Folder{Path: "/data", At: "/data", Free: 1 << 30, Inodes: 1 << 20, FreeInodes: 1 << 19, Mount: Mount{Type: "ext4", Point: "/", Root: "/"}}
}

func TestTheRoomThatIsLeft(t *testing.T) {
	room := func(free, inodes, freeInodes uint64) []Finding {
		f := disk()
		f.Free, f.Inodes, f.FreeInodes = free, inodes, freeInodes
		return f.room("")
	}
	judge(t, map[string]judged{
		"enough":                            {room(16<<20, 9999, 1024), []string{"ok room"}, []string{"16 MiB", "1024 inodes", "/data"}},
		"little":                            {room(16<<20-1, 9999, 1024), []string{"warning room"}, []string{"make room"}},
		"few inodes":                        {room(16<<20, 9999, 1023), []string{"warning room"}, []string{"1023 inodes"}},
		"none to speak of":                  {room(1<<20-1, 9999, 1024), []string{"error room"}, []string{"1023 KiB"}},
		"no inodes to speak of":             {room(16<<20, 9999, 63), []string{"error room"}, []string{"63 inodes"}},
		"a file system that makes inodes":   {room(16<<20, 0, 0), []string{"ok room"}, []string{"16 MiB left"}},
		"a folder that cannot be looked at": {Folder{Err: errors.New("no")}.room(""), nil, nil},
		"exactly what the next writes need": {room(1<<20, 9999, 64), []string{"warning room"}, nil},
	})
}

func TestTheStateFolderMustLastAndBeWritable(t *testing.T) {
	dir := func(change func(*StateDir)) []Finding {
		s := StateDir{Folder: disk(), Real: "/data"}
		change(&s)
		return s.findings()
	}
	bad := []string{"error state-dir", "ok room"}
	judge(t, map[string]judged{
		"as it should be":                       {dir(func(*StateDir) {}), []string{"ok state-dir", "ok room"}, []string{"/data", "ext4"}},
		"not there yet":                         {dir(func(s *StateDir) { s.Path = "/data/state" }), []string{"ok state-dir", "ok room"}, []string{"/data/state is not there yet"}},
		"on a mount that is not to be seen":     {dir(func(s *StateDir) { s.Mount = Mount{}; s.InPod = true }), []string{"ok state-dir", "ok room"}, []string{"whether it lasts could not be told"}},
		"on a tmpfs":                            {dir(func(s *StateDir) { s.Mount.Type = "tmpfs" }), bad, []string{"a reboot loses it", "--state-dir"}},
		"on a devtmpfs":                         {dir(func(s *StateDir) { s.Mount.Type = "devtmpfs" }), bad, []string{"devtmpfs"}},
		"on a ramfs":                            {dir(func(s *StateDir) { s.Mount.Type = "ramfs" }), bad, []string{"ramfs"}},
		"the container's own":                   {dir(func(s *StateDir) { s.Mount = Mount{Type: "btrfs", Point: "/", Root: "/x"}; s.InPod = true }), bad, []string{"goes with the container", "hostPath"}},
		"an overlay that is the whole system's": {dir(func(s *StateDir) { s.Mount.Type = "overlay" }), []string{"ok state-dir", "ok room"}, []string{"overlay"}},
		"the host's, which is an overlay":       {dir(func(s *StateDir) { s.Mount = Mount{Type: "overlay", Point: "/data", Root: "/data"}; s.InPod = true }), []string{"ok state-dir", "ok room"}, nil},
		"an emptyDir":                           {dir(func(s *StateDir) { s.Mount.Root = "/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/state" }), bad, []string{"goes with the pod"}},
		"in a folder that Cilium removes":       {dir(func(s *StateDir) { s.Real = "/run/cilium/ipam" }), bad, []string{"/run/cilium", "cleanState"}},
		"that folder itself":                    {dir(func(s *StateDir) { s.Real = "/var/lib/cilium" }), bad, []string{"/var/lib/cilium"}},
		"a name that begins alike":              {dir(func(s *StateDir) { s.Real = "/var/lib/cilium-ipam" }), []string{"ok state-dir", "ok room"}, nil},
		"another user's":                        {dir(func(s *StateDir) { s.Refused = errors.New("belongs to user 7") }), bad, []string{"belongs to user 7"}},
		"read-only":                             {dir(func(s *StateDir) { s.ReadOnly = true }), bad, []string{"read-only"}},
		"forbidden":                             {dir(func(s *StateDir) { s.NotWritable = fs.ErrPermission }), bad, []string{"permission denied", "run doctor as that user"}},
		"not to be looked at":                   {dir(func(s *StateDir) { s.Err = errors.New("I/O error") }), []string{"error state-dir"}, []string{"I/O error"}},
	})
}

func TestTheFolderOfThePluginMustBeThatOfThePods(t *testing.T) {
	refused := errors.New("on the container's own file system")
	state := func(change func(*PluginState), err error) []Finding {
		s := PluginState{Folder: disk(), Key: "dataDir"}
		change(&s)
		return s.findings("default", err)
	}
	pod := func(point, root string) func(*PluginState) {
		return func(s *PluginState) {
			s.InPod, s.At, s.Path = true, "/var/lib/cni/networks", "/var/lib/cni/networks"
			s.Mount = Mount{Type: "ext4", Point: point, Root: root}
		}
	}
	with := func(first, then func(*PluginState)) func(*PluginState) {
		return func(s *PluginState) { first(s); then(s) }
	}
	fine, wrong := []string{"ok plugin-state", "ok room"}, []string{"error plugin-state", "ok room"}
	judge(t, map[string]judged{
		"a plugin without one":                   {state(func(s *PluginState) { s.Path = "" }, nil), []string{"ok plugin-state"}, []string{"not looked at"}},
		"on a host":                              {state(func(*PluginState) {}, nil), fine, []string{"no pod"}},
		"relative":                               {state(func(s *PluginState) { s.Path = "leases" }, nil), []string{"error plugin-state"}, []string{"ipam.dataDir", `"leases"`, "absolute"}},
		"refused by serve":                       {state(func(*PluginState) {}, refused), []string{"error plugin-state"}, []string{refused.Error(), "hostPath"}},
		"read-only":                              {state(func(s *PluginState) { s.ReadOnly = true }, nil), wrong, []string{"read-only", "ipam.dataDir"}},
		"forbidden":                              {state(func(s *PluginState) { s.NotWritable = fs.ErrPermission }, nil), wrong, []string{"permission denied"}},
		"mounted from the same path of the host": {state(pod("/var/lib/cni/networks", "/var/lib/cni/networks"), nil), fine, []string{"could not be told"}},
		"below what is mounted from the same path":        {state(pod("/var/lib/cni", "/var/lib/cni"), nil), fine, nil},
		"mounted from a partition for /var":               {state(pod("/var/lib/cni/networks", "/lib/cni/networks"), nil), fine, nil},
		"mounted from a subvolume":                        {state(pod("/var/lib/cni/networks", "/@root/var/lib/cni/networks"), nil), fine, nil},
		"mounted from a node that is a container":         {state(pod("/var/lib/cni/networks", "/docker/volumes/x/_data/lib/cni/networks"), nil), fine, nil},
		"mounted elsewhere from such a node":              {state(pod("/var/lib/cni/networks", "/docker/volumes/x/_data/lib/leases"), nil), []string{"warning plugin-state", "ok room"}, []string{"/lib/leases"}},
		"reached by a link":                               {state(pod("/srv/cni", "/srv/cni"), nil), fine, []string{"could not be told"}},
		"mounted from another path":                       {state(pod("/var/lib/cni/networks", "/srv/x"), nil), []string{"warning plugin-state", "ok room"}, []string{"/srv/x", "same folder"}},
		"mounted from another path, and pods have leases": {state(with(pod("/var/lib/cni/networks", "/srv/x"), func(s *PluginState) { s.Others = 3 }), nil), fine, []string{"3 addresses of others"}},
		"an emptyDir":                 {state(pod("/var/lib/cni/networks", "/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/cni"), nil), wrong, []string{"emptyDir", "the same addresses"}},
		"the host's by its process 1": {state(with(pod("/var/lib/cni/networks", "/srv/x"), func(s *PluginState) { s.Host = HostSame }), nil), fine, []string{"the host's folder"}},
		"another than the host's":     {state(with(pod("/var/lib/cni/networks", "/var/lib/cni/networks"), func(s *PluginState) { s.Host = HostOther }), nil), wrong, []string{"another one"}},
		"a mount that is not known":   {state(with(pod("", ""), func(s *PluginState) { s.Mount = Mount{} }), nil), fine, []string{"could not be told"}},
	})
	if got := (PluginState{}).withLeases([]hostlocal.Lease{leased("10.0.0.1", "pod"), leased("10.0.0.2", ours("router"))}).Others; got != 1 {
		t.Errorf("%d leases are of others; want 1", got)
	}
}

func TestTheHostsFolderIsComparedWhereItsProcessOneCanBeSeen(t *testing.T) {
	dir := t.TempDir()
	seen, other := filepath.Join(dir, "seen"), filepath.Join(dir, "other")
	for _, d := range []string{filepath.Join(dir, "self/ns"), filepath.Join(dir, "1"), seen, filepath.Join(other, seen)} {
		must(t, os.MkdirAll(d, 0o755))
	}
	pidns, root := filepath.Join(dir, "self/ns/pid"), filepath.Join(dir, "1/root")
	for name, c := range map[string]struct {
		pidns, root string
		want        HostFolder
	}{
		"the same folder":                    {initialPIDNamespace, "/", HostSame},
		"another one of that path":           {initialPIDNamespace, other, HostOther},
		"none of that path":                  {initialPIDNamespace, seen, HostOther},
		"a process 1 that is none of a host": {"pid:[4026532000]", "/", HostUnknown},
		"a root that cannot be read":         {initialPIDNamespace, filepath.Join(dir, "nowhere"), HostUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			for link, target := range map[string]string{pidns: c.pidns, root: c.root} {
				_ = os.Remove(link) // of the case before
				must(t, os.Symlink(target, link))
			}
			if got := compareWithHost(dir, seen); got != c.want {
				t.Errorf("got %q; want %q", got, c.want)
			}
		})
	}
	t.Run("a link of the host that begins at its root", func(t *testing.T) {
		host, mounted := filepath.Join(dir, "host"), filepath.Join(dir, "mounted")
		must(t, os.MkdirAll(filepath.Join(host, dir), 0o755))
		must(t, os.Mkdir(filepath.Join(host, "real"), 0o755))
		must(t, os.Symlink("/real", filepath.Join(host, mounted)))
		must(t, os.Symlink(filepath.Join(host, "real"), mounted))
		for link, target := range map[string]string{pidns: initialPIDNamespace, root: host} {
			_ = os.Remove(link)
			must(t, os.Symlink(target, link))
		}
		if got := compareWithHost(dir, mounted); got != HostSame {
			t.Errorf("got %q; want %q", got, HostSame)
		}
	})
	if got := compareWithHost(filepath.Join(dir, "none"), seen); got != HostUnknown {
		t.Errorf("without /proc got %q; want nothing", got)
	}
}

func TestAFolderThatIsNotThereIsJudgedByTheOneAboveIt(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if f := lookAtFolder(filepath.Join(dir, "a/b")); f.Err != nil || f.At != dir || f.Free == 0 || f.NotWritable != nil {
		t.Errorf("got %+v; want what %s has", f, dir)
	}
	for _, path := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "file/x")} {
		if f := lookAtFolder(path); f.Err == nil {
			t.Errorf("%s: got %+v; want an error: a file is in the way", path, f)
		}
	}
}
