package doctor

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
)

func TestPluginStateWritable(t *testing.T) {
	found := func(change func(*pool)) []Finding { return runPool("plugin-state", change) }
	runCases(t, map[string]testCase{
		"no state directory": {found(func(p *pool) { p.stateDir.path = "" }), states(ok), []string{"not checked"}},
		"on a host":          {found(nil), states(ok), []string{"not run in a pod"}},
		"relative":           {found(func(p *pool) { p.stateDir.path = "leases" }), states(failed), []string{"ipam.dataDir", `"leases"`, "absolute"}},
		"read-only":          {found(func(p *pool) { p.stateDir.readOnly = true }), states(failed), []string{"read-only", "ipam.dataDir"}},
		"no permission":      {found(func(p *pool) { p.stateDir.notWritable = fs.ErrPermission }), states(failed), []string{"permission denied"}},
	})
}

func TestPluginStateShared(t *testing.T) {
	const path = "/var/lib/cni/networks"
	// shared returns the finding for a directory in a pod that is mounted from root.
	shared := func(point, root string, otherLeases int) []Finding {
		d := directory{path: path, at: path, mount: files.Mount{Point: point, Root: root}}
		state, remedy, text := d.shared(true, otherLeases)
		return []Finding{{State: state, Remedy: remedy, Message: text}}
	}
	inPod := func(point, root string) []Finding { return shared(point, root, 0) }
	runCases(t, map[string]testCase{
		"same path":                      {inPod(path, path), states(ok), []string{"unknown"}},
		"below a mount of the same path": {inPod("/var/lib/cni", "/var/lib/cni"), states(ok), nil},
		"partition for /var":             {inPod(path, "/lib/cni/networks"), states(ok), nil},
		"subvolume":                      {inPod(path, "/@root/var/lib/cni/networks"), states(ok), nil},
		"node is a container":            {inPod(path, "/docker/volumes/x/_data/lib/cni/networks"), states(ok), nil},
		"other path of such a node":      {inPod(path, "/docker/volumes/x/_data/lib/leases"), states(warning), []string{"/lib/leases"}},
		"symbolic link":                  {inPod("/srv/cni", "/srv/cni"), states(ok), []string{"unknown"}},
		"other path":                     {inPod(path, "/srv/x"), states(warning), []string{"/srv/x", "same directory"}},
		"other path with leases of pods": {shared(path, "/srv/x", 3), states(ok), []string{"3 leases of others"}},
		"emptyDir":                       {inPod(path, "/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/cni"), states(failed), []string{"emptyDir", "the same addresses"}},
		"unknown mount":                  {inPod("", ""), states(ok), []string{"unknown"}},
	})
}

func TestOtherLeases(t *testing.T) {
	listed := []*models.Attachment{{
		Network: "pods", ContainerID: "0a1b", Interface: "eth0", State: models.AttachmentStateHeld,
		Addresses: []*models.AttachmentAddress{{IP: "10.0.0.3"}},
	}}
	noResponse := errors.New("no response")
	for name, tt := range map[string]struct {
		observed Observations
		serves   bool
		want     string
	}{
		"pods of the plugin":              {Observations{}, false, "2 leases of others"},
		"one container of the daemon":     {Observations{Before: listed}, true, "1 leases of others"},
		"the same, after":                 {Observations{After: listed}, true, "1 leases of others"},
		"containers, without the daemon":  {Observations{StatusErr: noResponse}, true, "doctor does not run in a pod"},
		"containers, without its list":    {Observations{ListErr: noResponse}, true, "doctor does not run in a pod"},
		"plugin's pods, without a daemon": {Observations{StatusErr: noResponse}, false, "2 leases of others"},
	} {
		t.Run(name, func(t *testing.T) {
			o := tt.observed
			o.Config = &daemon.Config{}
			o.pools = []pool{newPool(func(p *pool) {
				p.network.ServesContainers = tt.serves
				p.stateDir = directory{path: "/data", at: "/data"}
				p.store.leases = []hostlocal.Lease{leased("10.0.0.1", "pod"), leased("10.0.0.2", ownID("router")), leased("10.0.0.3", "0a1b")}
			})}
			runCases(t, map[string]testCase{"of the pool's store": {run(&o, "plugin-state"), states(ok), []string{tt.want}}})
		})
	}
}
