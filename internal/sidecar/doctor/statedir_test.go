package doctor

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
)

// newDir returns a directory without faults.
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
		return run(&Observations{Config: &sidecar.Config{}, stateDir: newDir(), pools: []pool{p}}, "disk-space")
	}
	runCases(t, map[string]testCase{
		"full":     {found(func(*pool) {}), states(ok, failed), []string{"0 KiB"}},
		"none":     {found(func(p *pool) { p.stateDir = directory{} }), states(ok), nil},
		"relative": {found(func(p *pool) { p.stateDir = directory{path: "leases"} }), states(ok), nil},
		"rejected": {found(func(p *pool) { p.plugin.StateErr = errors.New("no") }), states(ok), nil},
		"unknown":  {found(func(p *pool) { p.plugin.Profile.Type = "" }), states(ok), nil},
	})
}

func TestStateDir(t *testing.T) {
	found := func(change func(*stateDir)) []Finding {
		s := stateDir{directory: newDir(), real: "/data"}
		change(&s)
		return reported(s.check)
	}
	runCases(t, map[string]testCase{
		"durable":                     {found(func(*stateDir) {}), states(ok), []string{"/data", "ext4"}},
		"missing":                     {found(func(s *stateDir) { s.path = "/data/state" }), states(ok), []string{"/data/state does not exist yet"}},
		"unknown mount":               {found(func(s *stateDir) { s.mount = files.Mount{}; s.inPod = true }), states(ok), []string{"unknown whether it is durable"}},
		"tmpfs":                       {found(func(s *stateDir) { s.mount.Type = "tmpfs" }), states(failed), []string{"a reboot erases it", "--state-dir"}},
		"devtmpfs":                    {found(func(s *stateDir) { s.mount.Type = "devtmpfs" }), states(failed), []string{"devtmpfs"}},
		"ramfs":                       {found(func(s *stateDir) { s.mount.Type = "ramfs" }), states(failed), []string{"ramfs"}},
		"container's own file system": {found(func(s *stateDir) { s.mount = files.Mount{Type: "btrfs", Point: "/", Root: "/x"}; s.inPod = true }), states(failed), []string{"removed with the container", "hostPath"}},
		"overlay of the whole system": {found(func(s *stateDir) { s.mount.Type = "overlay" }), states(ok), []string{"overlay"}},
		"overlay of the host": {found(func(s *stateDir) {
			s.mount = files.Mount{Type: "overlay", Point: "/data", Root: "/data"}
			s.inPod = true
		}), states(ok), nil},
		"emptyDir":                              {found(func(s *stateDir) { s.mount.Root = "/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/state" }), states(failed), []string{"removed with the pod"}},
		"below a directory that Cilium removes": {found(func(s *stateDir) { s.real = "/run/cilium/ipam" }), states(failed), []string{"/run/cilium", "cleanState"}},
		"directory that Cilium removes":         {found(func(s *stateDir) { s.real = "/var/lib/cilium" }), states(failed), []string{"/var/lib/cilium"}},
		"similar name":                          {found(func(s *stateDir) { s.real = "/var/lib/cilium-ipam" }), states(ok), nil},
		"other user":                            {found(func(s *stateDir) { s.rejected = errors.New("belongs to user 7") }), states(failed), []string{"belongs to user 7"}},
		"read-only":                             {found(func(s *stateDir) { s.readOnly = true }), states(failed), []string{"read-only"}},
		"no permission":                         {found(func(s *stateDir) { s.notWritable = fs.ErrPermission }), states(failed), []string{"permission denied", "run doctor as that user"}},
		"unreadable":                            {found(func(s *stateDir) { s.err = errors.New("I/O error") }), states(failed), []string{"I/O error"}},
	})
}
