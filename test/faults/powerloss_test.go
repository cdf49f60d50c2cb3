package faults

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// A real file system loses what was not synced, while the sidecar serves. With an odd number host-local's
// store is on it, too: host-local does not sync its files.
//
//evidence:design/reliability Order on disk
func TestPowerLoss(t *testing.T) {
	eachBatch(t, rebootsAtRandom, sized(t, 2, 60), rebootOwners, func(t *testing.T, st *stats, number uint64) {
		n := nodeWith(t)
		on := []string{n.StateDir}
		if number%2 == 1 {
			on = append(on, n.StoreDir)
		}
		d := newDisk(t, n, on...)
		b := newBatch(t, n, number, rebootOwners, "--verify-interval=1h")
		n.Store = func() ([]oracle.Lease, error) {
			leases, _, err := oracle.HostLocalAfterKill(n.StoreDir)
			return leases, err
		}
		b.start()
		b.run(rebootSteps, 3, b.sendRandom, func(*rand.Rand) {
			d.cutPower(t)
			b.kill()
			st.kills.Add(1)
			d.restorePower(t)
			n.Reboot(t)
			b.start()
			wantQuarantined(t, b.sidecar, "")
			b.requestLock.Unlock()
		})
		_, files, err := oracle.HostLocalAfterKill(n.StoreDir)
		check.Must(t, err)
		var empty []netip.Addr
		for _, file := range files {
			empty = append(empty, netip.MustParseAddr(filepath.Base(file)))
		}
		st.empty.Add(int64(len(empty)))
		b.finish(empty...)
	})
}

// disk is an ext4 file system in a file, with directories that are mounted elsewhere.
type disk struct {
	image, device, root string
	dirs                []string
}

func newDisk(t *testing.T, n *harness.Node, dirs ...string) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Skipf(t, "mounting a file system needs root")
	}
	d := &disk{image: filepath.Join(n.Dir, "disk.img"), root: filepath.Join(n.Dir, "disk"), dirs: dirs}
	check.Must(t, errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, 16<<20), os.Mkdir(d.root, 0o700)))
	err := exec.Command("mkfs.ext4", "-q", "-b", "4096", d.image).Run()
	if err == nil {
		err = d.mount()
	}
	if err != nil {
		t.Skipf("no loop device with ext4: %v", err)
	}
	t.Cleanup(func() { d.unmount(t) })
	return d
}

// mount mounts the file system, and each of the directories from it.
func (d *disk) mount() error {
	out, err := exec.Command("losetup", "--find", "--show", d.image).Output()
	if err != nil {
		return err
	}
	d.device = strings.TrimSpace(string(out))
	if err := unix.Mount(d.device, d.root, "ext4", 0, ""); err != nil {
		return errors.Join(err, exec.Command("losetup", "--detach", d.device).Run())
	}
	var errs []error
	for _, dir := range d.dirs {
		there := filepath.Join(d.root, filepath.Base(dir))
		errs = append(errs, os.MkdirAll(there, 0o700), os.MkdirAll(dir, 0o700), unix.Mount(there, dir, "", unix.MS_BIND, ""))
	}
	return errors.Join(errs...)
}

// unmount also frees the device, when the last process with a copy of the mount has ended.
func (d *disk) unmount(t *testing.T) {
	t.Helper()
	for _, dir := range append(slices.Clone(d.dirs), d.root) {
		tryUnmount(t, dir)
	}
	if out, err := exec.Command("losetup", "--detach", d.device).CombinedOutput(); err != nil {
		t.Errorf("losetup: %v: %s", err, out)
	}
}

// cutPower ends all writes to the device, as a power loss does: EXT4_IOC_SHUTDOWN with
// EXT4_GOING_FLAGS_NOLOGFLUSH, of which package unix has no constants.
func (d *disk) cutPower(t *testing.T) {
	t.Helper()
	const shutdown, noLogFlush = 0x8004587d, 2
	root, err := os.Open(d.root)
	check.Must(t, err)
	defer root.Close()
	flags := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), shutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		t.Fatalf("%s: shutdown: %v", d.root, errno)
	}
}

// restorePower mounts a copy of what the device has, because other processes may keep the old mount.
func (d *disk) restorePower(t *testing.T) {
	t.Helper()
	d.unmount(t)
	data, err := os.ReadFile(d.image)
	check.Must(t, errors.Join(err, os.Remove(d.image), os.WriteFile(d.image, data, 0o600)))
	check.Must(t, d.mount())
}
