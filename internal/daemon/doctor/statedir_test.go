package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func newDir() directory {
	return directory{
		path: "/data", at: "/data", free: 1 << 30, inodes: 1 << 20, freeInodes: 1 << 19,
		mount: files.Mount{Type: "ext4", Point: "/", Root: "/"},
	}
}

func TestDiskSpace(t *testing.T) {
	space := func(free, inodes, freeInodes uint64) []Finding {
		f := newDir()
		f.free, f.inodes, f.freeInodes = free, inodes, freeInodes
		return reported(func(r *report) { checkSpace(f, r) })
	}
	runCases(t, map[string]testCase{
		"enough":                    {space(16<<20, 9999, 1024), states(ok), []string{"16 MiB", "1024 inodes", "/data"}},
		"few bytes":                 {space(16<<20-1, 9999, 1024), states(warning), []string{"free space"}},
		"few inodes":                {space(16<<20, 9999, 1023), states(warning), []string{"1023 inodes"}},
		"hardly any bytes":          {space(1<<20-1, 9999, 1024), states(failed), []string{"1023 KiB"}},
		"hardly any inodes":         {space(16<<20, 9999, 63), states(failed), []string{"63 inodes"}},
		"unlimited inodes":          {space(16<<20, 0, 0), states(ok), []string{"16 MiB are free"}},
		"unreadable directory":      {reported(func(r *report) { checkSpace(directory{err: errors.New("no")}, r) }), nil, nil},
		"at the limits of an error": {space(1<<20, 9999, 64), states(warning), nil},
	})
}

// The directory of a plugin is checked unless another check has reported it.
func TestDiskSpaceOfPlugins(t *testing.T) {
	found := func(change func(*pool)) []Finding {
		p := pool{stateDir: newDir(), name: "default", plugin: plugin.Inspection{Profile: profile.Profile{Type: "host-local"}}}
		p.stateDir.free = 0
		change(&p)
		return run(&Observations{Config: &daemon.Config{}, stateDir: newDir(), pools: []pool{p}}, "disk-space")
	}
	runCases(t, map[string]testCase{
		"full":     {found(func(*pool) {}), states(ok, failed), []string{"0 KiB"}},
		"none":     {found(func(p *pool) { p.stateDir = directory{} }), states(ok), nil},
		"relative": {found(func(p *pool) { p.stateDir = directory{path: "leases"} }), states(ok), nil},
		"unknown":  {found(func(p *pool) { p.plugin.Profile.Type = "" }), states(ok), nil},
	})
}

func TestStateDir(t *testing.T) {
	found := func(change func(*Observations)) []Finding {
		o := &Observations{Config: &daemon.Config{}, stateDir: newDir()}
		change(o)
		return run(o, "state-dir")
	}
	link := filepath.Join(t.TempDir(), "link")
	check.Must(t, os.Symlink("/", link))
	at := func(path string) func(*Observations) {
		return func(o *Observations) { o.stateDir.path, o.stateDir.at = path, path }
	}
	runCases(t, map[string]testCase{
		"durable":       {found(func(*Observations) {}), states(ok), []string{"/data", "ext4"}},
		"missing":       {found(func(o *Observations) { o.stateDir.path = "/data/state" }), states(ok), []string{"/data/state does not exist yet"}},
		"unknown mount": {found(func(o *Observations) { o.stateDir.mount = files.Mount{}; o.Config.InPod = true }), states(ok), []string{"unknown whether it is durable"}},
		"tmpfs":         {found(func(o *Observations) { o.stateDir.mount.Type = "tmpfs" }), states(failed), []string{"a reboot erases it", "--state-dir"}},
		"devtmpfs":      {found(func(o *Observations) { o.stateDir.mount.Type = "devtmpfs" }), states(failed), []string{"devtmpfs"}},
		"ramfs":         {found(func(o *Observations) { o.stateDir.mount.Type = "ramfs" }), states(failed), []string{"ramfs"}},
		"container's own file system": {found(func(o *Observations) {
			o.stateDir.mount = files.Mount{Type: "btrfs", Point: "/", Root: "/x"}
			o.Config.InPod = true
		}), states(failed), []string{"removed with the container", "hostPath"}},
		"overlay of the whole system": {found(func(o *Observations) { o.stateDir.mount.Type = "overlay" }), states(ok), []string{"overlay"}},
		"overlay of the host": {found(func(o *Observations) {
			o.stateDir.mount = files.Mount{Type: "overlay", Point: "/data", Root: "/data"}
			o.Config.InPod = true
		}), states(ok), nil},
		"emptyDir": {found(func(o *Observations) {
			o.stateDir.mount.Root = "/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/state"
		}), states(failed), []string{"removed with the pod"}},
		"below a directory that Cilium removes": {found(at("/run/cilium/ipam")), states(failed), []string{"/run/cilium", "cleanState"}},
		"directory that Cilium removes":         {found(at("/var/lib/cilium")), states(failed), []string{"/var/lib/cilium"}},
		"similar name":                          {found(at("/var/lib/cilium-ipam")), states(ok), nil},
		"rejected":                              {found(at(link)), states(failed), []string{"symbolic link"}},
		"read-only":                             {found(func(o *Observations) { o.stateDir.readOnly = true }), states(failed), []string{"read-only"}},
		"no permission":                         {found(func(o *Observations) { o.stateDir.notWritable = fs.ErrPermission }), states(failed), []string{"permission denied", "run doctor as that user"}},
		"unreadable":                            {found(func(o *Observations) { o.stateDir.err = errors.New("I/O error") }), states(failed), []string{"I/O error"}},
	})
}

func TestCollectDirectory(t *testing.T) {
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	t.Run("missing", func(t *testing.T) {
		if f := collectDirectory(filepath.Join(dir, "a/b")); f.err != nil || f.at != dir || f.free == 0 || f.notWritable != nil {
			t.Errorf("got %+v; want the description of %s", f, dir)
		}
	})
	for _, path := range []string{"file", "file/x"} {
		t.Run(path, func(t *testing.T) {
			if f := collectDirectory(filepath.Join(dir, path)); f.err == nil {
				t.Errorf("got %+v; want an error", f)
			}
		})
	}
}

func TestInEmptyDir(t *testing.T) {
	for root, want := range map[string]bool{
		"/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/run": true, "/var/lib/kubelet/pods/x/volumes/kubernetes.io~configmap/run": false, "": false,
	} {
		if got := inEmptyDir(files.Mount{Root: root}); got != want {
			t.Errorf("%q: %t; want %t", root, got, want)
		}
	}
}
