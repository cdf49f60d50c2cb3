package faults

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

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
	pending := make(chan answered, 1)
	go func() {
		a, err := s.Try(http.MethodPost, "/v1/ipam?owner=router")
		pending <- answered{a, err}
	}()
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
	router := s.AllocateFor(t, "router")
	wantHeld(t, s, "health", health)
	s.Stop(t)
	d.unmount(t)
	check.Must(t, d.mount())
	n.Reboot(t)
	s = n.Start(t, "--enable-ipv6=false")
	wantQuarantined(t, s, "")
	wantHeld(t, s, "health", health)
	wantHeld(t, s, "router", router)
	s.WaitConsistent(t)
}
