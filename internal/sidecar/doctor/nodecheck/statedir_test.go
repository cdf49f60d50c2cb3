package nodecheck

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// newDir returns a directory without faults.
func newDir() check.Dir {
	return check.Dir{
		Path: "/data", At: "/data", Free: 1 << 30, Inodes: 1 << 20, FreeInodes: 1 << 19,
		Mount: files.Mount{Type: "ext4", Point: "/", Root: "/"},
	}
}

func TestDiskSpace(t *testing.T) {
	space := func(free, inodes, freeInodes uint64) []check.Finding {
		f := newDir()
		f.Free, f.Inodes, f.FreeInodes = free, inodes, freeInodes
		return diskSpace(f)
	}
	runCases(t, map[string]testCase{
		"enough":                    {space(16<<20, 9999, 1024), states(ok), []string{"16 MiB", "1024 inodes", "/data"}},
		"few bytes":                 {space(16<<20-1, 9999, 1024), states(warning), []string{"free space"}},
		"few inodes":                {space(16<<20, 9999, 1023), states(warning), []string{"1023 inodes"}},
		"hardly any bytes":          {space(1<<20-1, 9999, 1024), states(failed), []string{"1023 KiB"}},
		"hardly any inodes":         {space(16<<20, 9999, 63), states(failed), []string{"63 inodes"}},
		"unlimited inodes":          {space(16<<20, 0, 0), states(ok), []string{"16 MiB are free"}},
		"unreadable directory":      {diskSpace(check.Dir{Err: errors.New("no")}), nil, nil},
		"at the limits of an error": {space(1<<20, 9999, 64), states(warning), nil},
	})
}

// The directory of a plugin is checked unless another check has reported it.
func TestDiskSpaceOfPlugins(t *testing.T) {
	found := func(change func(*check.Pool)) []check.Finding {
		p := check.Pool{StateDir: newDir(), Name: "default", Plugin: plugin.Inspection{Profile: profile.Profile{Type: "host-local"}}}
		p.StateDir.Free = 0
		change(&p)
		return DiskSpace.Run(&check.Observations{Config: &check.Config{}, StateDir: newDir(), Pools: []check.Pool{p}})
	}
	runCases(t, map[string]testCase{
		"full":     {found(func(*check.Pool) {}), states(ok, failed), []string{"0 KiB"}},
		"none":     {found(func(p *check.Pool) { p.StateDir = check.Dir{} }), states(ok), nil},
		"relative": {found(func(p *check.Pool) { p.StateDir = check.Dir{Path: "leases"} }), states(ok), nil},
		"rejected": {found(func(p *check.Pool) { p.Plugin.StateErr = errors.New("no") }), states(ok), nil},
		"unknown":  {found(func(p *check.Pool) { p.Plugin.Profile.Type = "" }), states(ok), nil},
	})
}

func TestStateDir(t *testing.T) {
	found := func(change func(*stateDir)) []check.Finding {
		s := stateDir{Dir: newDir(), real: "/data"}
		change(&s)
		return []check.Finding{s.finding()}
	}
	runCases(t, map[string]testCase{
		"durable":                     {found(func(*stateDir) {}), states(ok), []string{"/data", "ext4"}},
		"missing":                     {found(func(s *stateDir) { s.Path = "/data/state" }), states(ok), []string{"/data/state does not exist yet"}},
		"unknown mount":               {found(func(s *stateDir) { s.Mount = files.Mount{}; s.inPod = true }), states(ok), []string{"unknown whether it is durable"}},
		"tmpfs":                       {found(func(s *stateDir) { s.Mount.Type = "tmpfs" }), states(failed), []string{"a reboot erases it", "--state-dir"}},
		"devtmpfs":                    {found(func(s *stateDir) { s.Mount.Type = "devtmpfs" }), states(failed), []string{"devtmpfs"}},
		"ramfs":                       {found(func(s *stateDir) { s.Mount.Type = "ramfs" }), states(failed), []string{"ramfs"}},
		"container's own file system": {found(func(s *stateDir) { s.Mount = files.Mount{Type: "btrfs", Point: "/", Root: "/x"}; s.inPod = true }), states(failed), []string{"removed with the container", "hostPath"}},
		"overlay of the whole system": {found(func(s *stateDir) { s.Mount.Type = "overlay" }), states(ok), []string{"overlay"}},
		"overlay of the host": {found(func(s *stateDir) {
			s.Mount = files.Mount{Type: "overlay", Point: "/data", Root: "/data"}
			s.inPod = true
		}), states(ok), nil},
		"emptyDir":                              {found(func(s *stateDir) { s.Mount.Root = "/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/state" }), states(failed), []string{"removed with the pod"}},
		"below a directory that Cilium removes": {found(func(s *stateDir) { s.real = "/run/cilium/ipam" }), states(failed), []string{"/run/cilium", "cleanState"}},
		"directory that Cilium removes":         {found(func(s *stateDir) { s.real = "/var/lib/cilium" }), states(failed), []string{"/var/lib/cilium"}},
		"similar name":                          {found(func(s *stateDir) { s.real = "/var/lib/cilium-ipam" }), states(ok), nil},
		"other user":                            {found(func(s *stateDir) { s.rejected = errors.New("belongs to user 7") }), states(failed), []string{"belongs to user 7"}},
		"read-only":                             {found(func(s *stateDir) { s.ReadOnly = true }), states(failed), []string{"read-only"}},
		"no permission":                         {found(func(s *stateDir) { s.NotWritable = fs.ErrPermission }), states(failed), []string{"permission denied", "run doctor as that user"}},
		"unreadable":                            {found(func(s *stateDir) { s.Err = errors.New("I/O error") }), states(failed), []string{"I/O error"}},
	})
}
