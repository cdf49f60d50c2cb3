package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

// stateFinding returns the finding for a directory without faults, with a change; stateErr is
// why serve rejects it.
func stateFinding(change func(*pluginState), stateErr error) []Finding {
	s := pluginState{directory: directory{path: "/data", at: "/data", mount: files.Mount{Type: "ext4", Point: "/", Root: "/"}}}
	change(&s)
	p := newPool(func(p *pool) { p.plugin.StateErr = stateErr })
	return reported(func(r *report) { s.check(p, r) })
}

func TestPluginStateWritable(t *testing.T) {
	rejected := errors.New("on the container's own file system")
	runCases(t, map[string]testCase{
		"no state directory": {stateFinding(func(s *pluginState) { s.path = "" }, nil), states(ok), []string{"not checked"}},
		"on a host":          {stateFinding(func(*pluginState) {}, nil), states(ok), []string{"not run in a pod"}},
		"relative":           {stateFinding(func(s *pluginState) { s.path = "leases" }, nil), states(failed), []string{"ipam.dataDir", `"leases"`, "absolute"}},
		"rejected by serve":  {stateFinding(func(*pluginState) {}, rejected), states(failed), []string{rejected.Error(), "hostPath"}},
		"read-only":          {stateFinding(func(s *pluginState) { s.readOnly = true }, nil), states(failed), []string{"read-only", "ipam.dataDir"}},
		"no permission":      {stateFinding(func(s *pluginState) { s.notWritable = fs.ErrPermission }, nil), states(failed), []string{"permission denied"}},
	})
}

func TestPluginStateShared(t *testing.T) {
	const path = "/var/lib/cni/networks"
	// inPod returns the finding for a directory in a pod that is mounted from root.
	inPod := func(point, root string, changes ...func(*pluginState)) []Finding {
		return stateFinding(func(s *pluginState) {
			s.inPod, s.at, s.path = true, path, path
			s.mount = files.Mount{Type: "ext4", Point: point, Root: root}
			for _, change := range changes {
				change(s)
			}
		}, nil)
	}
	host := func(h hostDir) func(*pluginState) { return func(s *pluginState) { s.host = h } }
	runCases(t, map[string]testCase{
		"same path":                      {inPod(path, path), states(ok), []string{"unknown"}},
		"below a mount of the same path": {inPod("/var/lib/cni", "/var/lib/cni"), states(ok), nil},
		"partition for /var":             {inPod(path, "/lib/cni/networks"), states(ok), nil},
		"subvolume":                      {inPod(path, "/@root/var/lib/cni/networks"), states(ok), nil},
		"node is a container":            {inPod(path, "/docker/volumes/x/_data/lib/cni/networks"), states(ok), nil},
		"other path of such a node":      {inPod(path, "/docker/volumes/x/_data/lib/leases"), states(warning), []string{"/lib/leases"}},
		"symbolic link":                  {inPod("/srv/cni", "/srv/cni"), states(ok), []string{"unknown"}},
		"other path":                     {inPod(path, "/srv/x"), states(warning), []string{"/srv/x", "same directory"}},
		"other path with leases of pods": {inPod(path, "/srv/x", func(s *pluginState) { s.otherLeases = 3 }), states(ok), []string{"3 leases of others"}},
		"emptyDir":                       {inPod(path, "/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/cni"), states(failed), []string{"emptyDir", "the same addresses"}},
		"host has the same":              {inPod(path, "/srv/x", host(hostSame)), states(ok), []string{"the host's directory"}},
		"host has another":               {inPod(path, path, host(hostOther)), states(failed), []string{"another one"}},
		"unknown mount":                  {inPod("", "", func(s *pluginState) { s.mount = files.Mount{} }), states(ok), []string{"unknown"}},
	})
}

func TestOtherLeases(t *testing.T) {
	found := runPool("plugin-state", func(p *pool) {
		p.stateDir = directory{path: "/data", at: "/data"}
		p.store.leases = []hostlocal.Lease{leased("10.0.0.1", "pod"), leased("10.0.0.2", ownID("router"))}
	})
	runCases(t, map[string]testCase{"of the pool's store": {found, states(ok), []string{"1 leases of others"}}})
}

func TestCompareWithHost(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "path"), filepath.Join(dir, "other")
	for _, d := range []string{filepath.Join(dir, "self/ns"), filepath.Join(dir, "1"), path, filepath.Join(other, path)} {
		must(t, os.MkdirAll(d, 0o755))
	}
	pidns, root := filepath.Join(dir, "self/ns/pid"), filepath.Join(dir, "1/root")
	for name, c := range map[string]struct {
		pidns, root string
		want        hostDir
	}{
		"same directory":      {initialPIDNamespace, "/", hostSame},
		"another directory":   {initialPIDNamespace, other, hostOther},
		"no directory":        {initialPIDNamespace, path, hostOther},
		"other PID namespace": {"pid:[4026532000]", "/", hostUnknown},
		"unreadable root":     {initialPIDNamespace, filepath.Join(dir, "nowhere"), hostUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			for link, target := range map[string]string{pidns: c.pidns, root: c.root} {
				_ = os.Remove(link) // of the previous case
				must(t, os.Symlink(target, link))
			}
			if got := compareWithHost(dir, path); got != c.want {
				t.Errorf("got %q; want %q", got, c.want)
			}
		})
	}
	t.Run("absolute link of the host", func(t *testing.T) {
		host, mounted := filepath.Join(dir, "host"), filepath.Join(dir, "mounted")
		must(t, os.MkdirAll(filepath.Join(host, dir), 0o755))
		must(t, os.Mkdir(filepath.Join(host, "real"), 0o755))
		must(t, os.Symlink("/real", filepath.Join(host, mounted)))
		must(t, os.Symlink(filepath.Join(host, "real"), mounted))
		for link, target := range map[string]string{pidns: initialPIDNamespace, root: host} {
			_ = os.Remove(link)
			must(t, os.Symlink(target, link))
		}
		if got := compareWithHost(dir, mounted); got != hostSame {
			t.Errorf("got %q; want %q", got, hostSame)
		}
	})
	if got := compareWithHost(filepath.Join(dir, "none"), path); got != hostUnknown {
		t.Errorf("without /proc: %q; want none", got)
	}
}
