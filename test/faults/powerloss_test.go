package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
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

// A kill between the write and the sync of a change leaves it in the memory of the kernel alone. What the next daemon
// answers of it survives a power loss.
//
//evidence:design/reliability killed before the sync of a change, and the power fails after the restart
func TestKilledBeforeSync(t *testing.T) {
	st := oneCase(t, fsyncOrder)
	killed := true
	for visit := 1; killed; visit++ {
		if visit > 40 {
			t.Fatal("each of 40 syncs kills the daemon; want an allocation before")
		}
		t.Run(fmt.Sprintf("sync %d", visit), func(t *testing.T) {
			n := nodeWith(t)
			n.Program = harness.Failpoints(t)
			d := newDisk(t, n, "ext4", n.StateDir)
			n.Wrapper = []string{wantStrace(t), "-D", "-f", "-o", os.DevNull, "-e", "trace=fsync,fdatasync", "-e", fmt.Sprintf("inject=fsync,fdatasync:signal=KILL:when=%d", visit)}
			first := n.Launch(t, "--enable-ipv6=false")
			harness.Eventually(t, "a response, or the kill", func() error {
				if !first.Running() {
					return nil
				}
				_, err := first.Try(http.MethodPost, "/v1/ipam?owner=router")
				return err
			})
			if killed = !first.Running(); killed {
				st.kills.Add(1)
			} else {
				first.Kill(t)
			}
			n.Wrapper = nil
			wantDurableAnswer(t, d, n.Start(t, "--enable-ipv6=false"), n)
		})
	}
	t.Run("sync of the page that leads to the change", func(t *testing.T) {
		n := nodeWith(t)
		d := newDisk(t, n, "ext4", n.StateDir)
		first := launchWithSlowCommits(t, n)
		done := make(chan struct{})
		go func() { defer close(done); _, _ = first.Try(http.MethodPost, "/v1/ipam?owner=router") }()
		harness.Eventually(t, "the change in the memory of the kernel", func() error {
			_, all, err := journal.Read(n.StateDir)
			if err == nil && !slices.ContainsFunc(all.Records, func(r attachment.Record) bool { return r.State == attachment.Held }) {
				err = fmt.Errorf("the records are %s", describe(all))
			}
			return err
		})
		first.Kill(t)
		st.kills.Add(1)
		<-done
		// The commit of a readiness probe would make durable also what the start has not, so it takes longer than the answer.
		wantDurableAnswer(t, d, launchWithSlowCommits(t, n), n)
	})
}

// launchWithSlowCommits runs a daemon whose commits take seconds, and waits until it responds. Its start syncs the new file
// by fsync, which is not delayed.
func launchWithSlowCommits(t *testing.T, n *harness.Node) *harness.Daemon {
	t.Helper()
	n.Wrapper = []string{wantStrace(t), "-D", "-f", "-o", os.DevNull, "-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=1000000"}
	s := n.Launch(t, "--enable-ipv6=false")
	harness.Eventually(t, "a response", func() error { _, err := s.TryList(); return err })
	n.Wrapper = nil
	return s
}

// wantDurableAnswer wants what a restarted daemon answers to survive a power loss right after it.
func wantDurableAnswer(t *testing.T, d *disk, s *harness.Daemon, n *harness.Node) {
	t.Helper()
	n.ResetHistory()
	held := s.AllocateFor(t, "router")

	d.cutPower(t)
	s.Kill(t)
	d.restorePower(t)
	n.Reboot(t)
	s = n.Start(t, "--enable-ipv6=false")
	if a := s.Attachment(t, "router"); a == nil || a.State != "held" {
		t.Errorf("after the power loss the attachment of the router is %+v; want it held", a)
	}
	wantNotGiven(t, s, "health", held)
	wantHeld(t, s, "router", held)
	s.WaitConsistent(t)
}

// extent matches the first line of filefrag about a file, with the first block on the device.
var extent = regexp.MustCompile(`(?m)^ *0: +0\.\. *\d+: +(\d+)\.\.`)

// A block error leaves pages in the memory of the kernel that look clean, so that no later sync writes them. What the next
// daemon answers of them survives a reboot.
//
//evidence:design/reliability a block error in a change, and a reboot after the restart
func TestBlockErrorBeforeReboot(t *testing.T) {
	st := oneCase(t, storage)
	n := nodeWith(t)
	n.Program = harness.Failpoints(t)
	under := filepath.Join(n.Dir, "under")
	check.Must(t, os.Mkdir(under, 0o700))
	if err := unix.Mount("tmpfs", under, "tmpfs", 0, "size=64m"); err != nil {
		harness.Skipf(t, "mounting a file system needs root: %v", err)
	}
	t.Cleanup(func() { tryUnmount(t, under) })
	image := filepath.Join(under, "disk.img")
	check.Must(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 32<<20)))
	needProgram(t, "filefrag")
	d := &disk{kind: "ext4", image: image, root: filepath.Join(n.Dir, "disk"), dirs: []string{n.StateDir}}
	check.Must(t, os.Mkdir(d.root, 0o700))
	if out, err := exec.Command("mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0", image).CombinedOutput(); err != nil {
		t.Skipf("no ext4: %v: %s", err, out)
	}
	check.Must(t, d.mount())
	t.Cleanup(func() { d.unmount(t) })
	plugin := installPausable(t, n)
	s := n.Start(t, "--enable-ipv6=false")
	health := s.AllocateFor(t, "health")
	plugin.pause(t)
	pending := allocateInBackground(s, "router", 1)
	plugin.waitPausedADDs(t, 1)

	// The blocks of the two meta pages lose their place on a device that has no space: of the next change the kernel has all,
	// the disk all but the page that leads to it.
	unix.Sync()
	out, err := exec.Command("filefrag", "-v", "-b4096", journalFile(n)).Output()
	check.Must(t, err)
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	check.Must(t, err)
	defer file.Close()
	first := extent.FindSubmatch(out)
	if first == nil {
		t.Fatalf("the file has no blocks: %s", out)
	}
	begin, err := strconv.ParseInt(string(first[1]), 10, 64)
	check.Must(t, errors.Join(err, unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, begin<<12, 2<<12)))
	ballast := filepath.Join(under, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 64<<20), 0o600); err == nil {
		t.Fatal("the device is not full")
	}
	plugin.resume(t)
	a := <-pending
	check.Must(t, a.err)
	a.WantError(t, http.StatusBadGateway, "journal.db")
	s.Kill(t)
	st.kills.Add(1)
	check.Must(t, os.Remove(ballast))

	n.ResetHistory()
	s = n.Start(t, "--enable-ipv6=false")
	router := s.AllocateFor(t, "router-0")
	wantHeld(t, s, "health", health)
	s.Stop(t)
	d.unmount(t)
	check.Must(t, d.mount())
	n.Reboot(t)
	s = n.Start(t, "--enable-ipv6=false")
	wantQuarantined(t, s, "")
	wantHeld(t, s, "health", health)
	wantHeld(t, s, "router-0", router)
	s.WaitConsistent(t)
}
