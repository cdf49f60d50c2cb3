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

// A real file system loses what was not synced, while the daemon serves, also one that was just killed and started
// again. In half of the batches host-local's store is on it, too. Nothing that was answered is lost or changes.
//
//evidence:design/reliability Order on disk
func TestPowerLoss(t *testing.T) {
	eachBatch(t, powerLosses, sized(t, 4, 100), rebootOwners, func(t *testing.T, st *stats, number uint64) {
		n := nodeWith(t)
		kinds := []string{"ext4", "xfs", "btrfs"}
		on := []string{n.StateDir}
		if number/3%2 == 1 {
			on = append(on, n.StoreDir)
		}
		d := newDisk(t, n, kinds[number%3], on...)
		b := newBatch(t, n, number, rebootOwners, "--verify-interval=1h")
		n.Store = func() ([]oracle.Lease, error) {
			leases, _, err := oracle.HostLocalAfterKill(n.StoreDir)
			return leases, err
		}
		b.start()
		b.run(rebootSteps, 3, b.sendRandom, func(dice *rand.Rand) {
			for range dice.IntN(3) { // in the same boot
				b.kill()
				st.kills.Add(1)
				b.start()
				b.requestLock.Unlock()
			}
			d.cutPower(t)
			b.kill()
			st.kills.Add(1)
			d.restorePower(t)
			held := b.answered()
			if kept := b.holders(); len(kept) < len(held) {
				t.Errorf("%d owners have been answered, and disks have the records and leases of %d", len(held), len(kept))
			}
			n.Reboot(t)
			b.start()
			wantQuarantined(t, b.daemon, "")
			b.allocateHeld(held)
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

// disk is a file system in a file, with directories that are mounted elsewhere.
type disk struct {
	kind, image, device, root string
	dirs                      []string
}

func newDisk(t *testing.T, n *harness.Node, kind string, dirs ...string) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Skipf(t, "mounting a file system needs root")
	}
	d := &disk{kind: kind, image: filepath.Join(n.Dir, "disk.img"), root: filepath.Join(n.Dir, "disk"), dirs: dirs}
	size, mkfs := 16<<20, []string{"mkfs.ext4", "-q", "-b", "4096"}
	switch kind {
	case "xfs":
		size, mkfs = 320<<20, []string{"mkfs.xfs", "-q", "-f"}
	case "btrfs":
		size, mkfs = 160<<20, []string{"mkfs.btrfs", "-q", "-f"}
	}
	needProgram(t, mkfs[0])
	check.Must(t, errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, int64(size)), os.Mkdir(d.root, 0o700)))
	err := exec.Command(mkfs[0], append(mkfs[1:], d.image)...).Run()
	if err == nil {
		err = d.mount()
	}
	if err != nil {
		t.Skipf("no loop device with %s: %v", kind, err)
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
	options := ""
	if d.kind == "xfs" {
		options = "nouuid" // the copy of an image has that of the old one, which may be in use
	}
	if err := unix.Mount(d.device, d.root, d.kind, 0, options); err != nil {
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
// EXT4_GOING_FLAGS_NOLOGFLUSH, of which package unix has no constants. They are also those of XFS. Btrfs has no such
// call: the image is copied before the kernel writes what the killed daemon has not synced.
func (d *disk) cutPower(t *testing.T) {
	t.Helper()
	if d.kind == "btrfs" {
		return
	}
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
	if d.kind != "btrfs" {
		d.unmount(t)
	}
	copied := d.image + ".copy"
	if out, err := exec.Command("cp", "--sparse=always", d.image, copied).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	if d.kind == "btrfs" {
		d.unmount(t)
	}
	check.Must(t, errors.Join(os.Remove(d.image), os.Rename(copied, d.image)))
	// Two file systems of one ID cannot be mounted concurrently, and a process may keep the old one for a moment.
	harness.Eventually(t, "the disk to be mounted", d.mount)
}
