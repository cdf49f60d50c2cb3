package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestDoctorRepair(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		wantFindings(t, n, 0, nil)
		blocked := []string{"10.15.0.77", "10.15.0.78"}
		for _, ip := range blocked {
			putLease(t, n, ip, "")
			if a := s.TryRestore(t, ip, "ingress"); a.Status == http.StatusOK {
				t.Errorf("%s was restored although a stale file blocks it", ip)
			}
		}
		wantFindings(t, n, 3, []string{"warning stale-lease-files 10.15.0.77", "warning stale-lease-files 10.15.0.78"})
		wantFindings(t, n, 0, nil, "--repair")
		wantFindings(t, n, 0, nil)
		for i, ip := range blocked {
			s.TryRestore(t, ip, fmt.Sprintf("ingress-%d", i)).WantStatus(t, http.StatusOK)
		}
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	})
}

func TestDoctorRepairLinks(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	network := filepath.Dir(storeFile(n, "10.15.0.77"))
	outside := filepath.Join(n.Dir, "outside")
	stale := filepath.Join(outside, "10.15.0.77")
	for _, dir := range []string{outside, network} {
		harness.Must(t, os.MkdirAll(dir, 0o755))
	}
	harness.Must(t, os.WriteFile(stale, nil, 0o600))
	wantUntouched := func() {
		t.Helper()
		if all, err := os.ReadDir(outside); err != nil || len(all) != 1 || all[0].Name() != filepath.Base(stale) {
			t.Errorf("the directory outside has %v, %v; want it untouched", all, err)
		}
	}
	harness.Must(t, os.Symlink(stale, storeFile(n, "10.15.0.77")))
	n.Start(t)
	wantFindings(t, n, 3, []string{"warning store 10.15.0.77"}, "--repair")
	wantUntouched()
	harness.Must(t, os.Remove(storeFile(n, "10.15.0.77")))
	harness.Must(t, os.Remove(filepath.Join(network, "lock")))

	harness.Must(t, os.Symlink(filepath.Join(outside, "lock"), filepath.Join(network, "lock")))
	wantFindings(t, n, 1, []string{"error store "}, "--repair")
	wantUntouched()
	harness.Must(t, os.Remove(filepath.Join(network, "lock")))

	harness.Must(t, os.Rename(network, network+".moved"))
	harness.Must(t, os.Symlink(outside, network))
	wantFindings(t, n, 1, []string{"error store "}, "--repair")
	wantUntouched()
	harness.Must(t, os.Remove(network))
	harness.Must(t, os.Rename(network+".moved", network))
}

func TestDoctorLeases(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--verify-interval=0s")
	held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
	putLease(t, n, "10.15.0.77", strings.TrimSpace(n.Command(t, "id", "ghost").Stdout)+"\r\neth0")
	for _, ip := range held {
		if err := os.Remove(storeFile(n, ip)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"warning leases 10.15.0.77"}
	for _, ip := range held {
		want = append(want, "error leases "+ip)
	}
	wantFindings(t, n, 1, want)
	wantFindings(t, n, 1, want, "--repair")

	s.Release(t, s.Allocate(t, harness.Request{Owner: "ghost"}).Addresses()...)
	wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	wantFindings(t, n, 0, nil)
}

func TestDoctorSidecar(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	wantFindings(t, n, 1, []string{"error sidecar ", "error cni-config "})
	n.Launch(t).WaitServing(t)
	o := n.Command(t, "doctor")
	for _, text := range []string{"not ready:", n.ConfDir, "write the CNI configuration"} {
		if o.ExitCode != 1 || !strings.Contains(o.Stdout, text) {
			t.Errorf("exit status %d, output %q; want 1 and %q", o.ExitCode, o.Stdout, text)
		}
	}
}

func TestDoctorRepairLock(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t)
	s.Allocate(t, harness.Request{Owner: "router"})
	file := storeFile(n, "10.15.0.77")
	putLease(t, n, "10.15.0.77", "")
	lock, err := os.Open(filepath.Join(filepath.Dir(file), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	wrote := make(chan error, 1)
	go func() { wrote <- writeWhileDoctorWaits(ctx, lock, file) }()
	o := n.Command(t, "doctor", "--repair")
	cancel()
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != podsLease {
		t.Errorf("the file holds %q, %v; want what host-local wrote before it unlocked", data, err)
	}
	if o.ExitCode != 0 {
		t.Errorf("exit status %d, output %q; want 0", o.ExitCode, o.Stdout)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// podsLease is the content of the file of a pod's address.
const podsLease = "pod\r\neth0"

// writeWhileDoctorWaits acts as a slow host-local: when a doctor has opened the lock that
// it holds, it writes its ID to the file that it has created, and unlocks.
func writeWhileDoctorWaits(ctx context.Context, lock *os.File, file string) error {
	defer lock.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !openedByDoctor(lock.Name()) {
		select {
		case <-ctx.Done():
			return errors.New("doctor ended without waiting for the lock")
		case <-tick.C:
		}
	}
	return os.WriteFile(file, []byte(podsLease), 0o600)
}

// openedByDoctor reports whether a `doctor` process has a file open.
func openedByDoctor(file string) bool {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is valid, so it cannot fail
	return slices.ContainsFunc(links, func(link string) bool {
		target, err := os.Readlink(link)
		if err != nil || target != file {
			return false
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(link), "..", "cmdline"))
		return err == nil && bytes.Contains(line, []byte("\x00doctor\x00"))
	})
}

// storeFile returns the path of the file of an address of the network "pods".
func storeFile(n *harness.Node, ip string) string { return filepath.Join(n.StoreDir, "pods", ip) }

// putLease writes the file of an address as host-local does.
func putLease(t *testing.T, n *harness.Node, ip, content string) {
	t.Helper()
	if err := os.WriteFile(storeFile(n, ip), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantFindings runs `doctor` and checks its exit status and its problems.
func wantFindings(t *testing.T, n *harness.Node, code int, want []string, flags ...string) {
	t.Helper()
	o := n.Command(t, append([]string{"doctor", "-o", "json"}, flags...)...)
	var found, ofNode []finding
	if err := json.Unmarshal([]byte(o.Stdout), &found); err != nil || len(found) == 0 {
		t.Fatalf("stdout %q, stderr %q: %v; want findings", o.Stdout, o.Stderr, err)
	}
	var got []string
	for _, f := range found {
		if f.State != "ok" && len((diagnosis{found: []finding{f}}).problems()) > 0 {
			ofNode = append(ofNode, f)
			got = append(got, f.State+" "+f.Check+" "+f.Address)
		}
	}
	if o.ExitCode != exitStatus(found) || exitStatus(ofNode) != code || !slices.Equal(got, want) {
		t.Errorf("doctor %q: exit status %d, problems %q; want %d and %q", flags, o.ExitCode, got, code, want)
	}
}
