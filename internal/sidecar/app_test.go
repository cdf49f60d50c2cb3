package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRun(t *testing.T) {
	t.Run("no CNI configuration", func(t *testing.T) {
		c := valid(t)
		log, ended, stop := run(t, c)
		log.await(t, "msg=Serving", ended)
		status := health(t, c)
		if status.DelegatedIpam.Ready || !strings.Contains(strings.Join(status.DelegatedIpam.Reasons, " "), c.CNIConfDir) {
			t.Errorf("ready %v, reasons %q; want not ready because of %s", status.DelegatedIpam.Ready, status.DelegatedIpam.Reasons, c.CNIConfDir)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.SocketPath); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket after the end: %v; want none", err)
		}
	})
	t.Run("second instance takes over the state directory", func(t *testing.T) {
		c := valid(t)
		log, ended, stop := run(t, c)
		log.await(t, "msg=Serving", ended)
		second, secondEnded, stopSecond := run(t, c)
		second.await(t, fmt.Sprintf("PID %d", os.Getpid()), secondEnded)
		if second.contains("msg=Serving") {
			t.Error("both instances serve")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		second.await(t, "msg=Serving", secondEnded)
		if err := stopSecond(); err != nil {
			t.Error(err)
		}
	})
	t.Run("cancelled while waiting for the state directory", func(t *testing.T) {
		c := valid(t)
		lock, err := journal.Lock(context.Background(), c.StateDir, journal.Holder{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Unlock() //nolint:errcheck // the directory is not used any more
		log, ended, stop := run(t, c)
		log.await(t, "waiting for the state directory", ended)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v; want %v", err, context.Canceled)
		}
	})
	t.Run("unusable records", testUnusableRecords)
	t.Run("second sidecar of the network", testSecondSidecar)
	t.Run("invalid option", func(t *testing.T) {
		c := valid(t)
		c.NodeName = ""
		if err := Run(context.Background(), c, logrus.New()); err == nil || !strings.Contains(err.Error(), "--node-name") {
			t.Errorf("error %v", err)
		}
		if _, err := os.Stat(c.StateDir); err == nil {
			t.Error("the state directory was created")
		}
	})
	t.Run("socket in use", func(t *testing.T) {
		c := valid(t)
		l, err := net.Listen("unix", c.SocketPath)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.MetricsAddress = free.Addr().String()
		if err := free.Close(); err != nil {
			t.Fatal(err)
		}
		log := logrus.New()
		log.SetOutput(io.Discard)
		if err := Run(context.Background(), c, log); err == nil || !strings.Contains(err.Error(), c.SocketPath) {
			t.Errorf("error %v; want one that names the socket", err)
		}
		again, err := net.Listen("tcp", c.MetricsAddress)
		if err != nil {
			t.Fatalf("the listener of the metrics was not closed: %v", err)
		}
		again.Close()
	})
}

func testUnusableRecords(t *testing.T) {
	c := valid(t)
	write(t, c, "state/attachments/torn-1.json", `{"version":1,"sha`)
	write(t, c, "state/attachments/later-1.json", `{"version":99,"sha256":"","record":{"owner":"router","pool":"default"}}`)
	log, ended, stop := run(t, c)
	log.await(t, "msg=Serving", ended)
	// A disk may take longer to respond than a report waits.
	harness.Eventually(t, "both records to be reported", func() error {
		var files []string
		for _, q := range health(t, c).DelegatedIpam.Quarantined {
			files = append(files, q.File+": "+q.Reason)
		}
		all := strings.Join(files, "\n")
		for _, want := range []string{"torn-1", "later-1", "newer", "router"} {
			if !strings.Contains(all, want) {
				return fmt.Errorf("the report %q does not contain %q", all, want)
			}
		}
		return nil
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(c.StateDir, "attachments/later-1.json")); err != nil {
		t.Errorf("the record of the newer version was moved: %v", err)
	}
}

func testSecondSidecar(t *testing.T) {
	c, other := valid(t), valid(t)
	for _, x := range []Config{c, other} {
		write(t, x, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local"}}]}`)
	}
	other.NodeName = c.NodeName
	log, ended, stop := run(t, c)
	log.await(t, "msg=Serving", ended)
	_, logger := newLog()
	err := Run(context.Background(), other, logger)
	if err == nil || !strings.Contains(err.Error(), c.StateDir) {
		t.Errorf("error %v; want one that names the state directory of the first sidecar", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := runUntilServing(t, other); err != nil {
		t.Errorf("after the end of the first sidecar: %v", err)
	}
}
