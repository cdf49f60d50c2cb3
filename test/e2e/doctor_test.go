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

func TestDoctorFindsEveryEmptyFileAndItsRepairFreesTheAddresses(t *testing.T) {
	eachNetwork(t, func(t *testing.T, n *harness.Node) {
		s := n.Start(t)
		held := s.Allocate(t, harness.Request{Owner: "router"}).Addresses()
		wantFindings(t, n, 0, nil)
		barred := []string{"10.15.0.77", "10.15.0.78"}
		for _, ip := range barred {
			putLease(t, n, ip, "")
			if a := s.TryRestore(t, ip, "ingress"); a.Status == http.StatusOK {
				t.Errorf("%s was restored although an empty file bars it", ip)
			}
		}
		wantFindings(t, n, 3, []string{"warning empty-files 10.15.0.77", "warning empty-files 10.15.0.78"})
		wantFindings(t, n, 0, nil, "--repair")
		wantFindings(t, n, 0, nil)
		for i, ip := range barred {
			s.TryRestore(t, ip, fmt.Sprintf("ingress-%d", i)).WantStatus(t, http.StatusOK)
		}
		wantAddresses(t, s.Allocate(t, harness.Request{Owner: "router"}).Addresses(), held)
	})
}

func TestDoctorFindsALeakedLeaseAndALostOneAndItsAdviceHelps(t *testing.T) {
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

func TestDoctorSaysThatTheSidecarDoesNotAnswerOrIsNotReady(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	wantFindings(t, n, 1, []string{"error sidecar ", "error conflist "})
	n.Launch(t).WaitServing(t)
	o := n.Command(t, "doctor")
	for _, says := range []string{"not ready:", n.ConfDir, "write the CNI configuration"} {
		if o.ExitCode != 1 || !strings.Contains(o.Stdout, says) {
			t.Errorf("ended with status %d and printed %q; want it to say %q", o.ExitCode, o.Stdout, says)
		}
	}
}

func TestRepairWaitsForTheLockOfAHostLocalThatRuns(t *testing.T) {
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
	go func() { wrote <- writeOnceDoctorWaits(ctx, lock, file) }()
	o := n.Command(t, "doctor", "--repair")
	cancel()
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != podsLease {
		t.Errorf("the file holds %q, %v; want what host-local wrote before it gave up its lock", data, err)
	}
	if o.ExitCode != 0 {
		t.Errorf("ended with status %d; want 0; it printed %q", o.ExitCode, o.Stdout)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// podsLease is what host-local writes into a file for a pod.
const podsLease = "pod\r\neth0"

// writeOnceDoctorWaits does what a host-local does that was slow: it has the lock,
// writes its ID into the file that it has made, and gives the lock up. It does so
// once a doctor has opened the lock.
func writeOnceDoctorWaits(ctx context.Context, lock *os.File, file string) error {
	defer lock.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !openedByDoctor(lock.Name()) {
		select {
		case <-ctx.Done():
			return errors.New("doctor has ended and nobody saw it wait for the lock")
		case <-tick.C:
		}
	}
	return os.WriteFile(file, []byte(podsLease), 0o600)
}

// openedByDoctor tells whether a `doctor` process has a file open.
func openedByDoctor(file string) bool {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is right, and nothing else can fail
	return slices.ContainsFunc(links, func(link string) bool {
		target, err := os.Readlink(link)
		if err != nil || target != file {
			return false
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(link), "..", "cmdline"))
		return err == nil && bytes.Contains(line, []byte("\x00doctor\x00"))
	})
}

// storeFile is where host-local keeps an address of the network "pods".
func storeFile(n *harness.Node, ip string) string { return filepath.Join(n.StoreDir, "pods", ip) }

// putLease puts a file into the store, as host-local would.
func putLease(t *testing.T, n *harness.Node, ip, content string) {
	t.Helper()
	if err := os.WriteFile(storeFile(n, ip), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantFindings runs `doctor` and compares its exit status and the findings that are
// not ok.
func wantFindings(t *testing.T, n *harness.Node, code int, want []string, flags ...string) {
	t.Helper()
	o := n.Command(t, append([]string{"doctor", "-o", "json"}, flags...)...)
	var found, ofNode []finding
	if err := json.Unmarshal([]byte(o.Stdout), &found); err != nil || len(found) == 0 {
		t.Fatalf("printed %q, to stderr %q: %v; want findings", o.Stdout, o.Stderr, err)
	}
	var got []string
	for _, f := range found {
		if f.State != "ok" && len((diagnosis{found: []finding{f}}).bad()) > 0 {
			ofNode = append(ofNode, f)
			got = append(got, f.State+" "+f.Check+" "+f.Address)
		}
	}
	if o.ExitCode != statusOf(found) || statusOf(ofNode) != code || !slices.Equal(got, want) {
		t.Errorf("doctor %q ended with status %d and found %q; want %d and %q", flags, o.ExitCode, got, code, want)
	}
}
