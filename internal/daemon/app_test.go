package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestRun(t *testing.T) {
	t.Run("no CNI configuration", func(t *testing.T) {
		c := valid(t)
		stop := serving(t, c)
		status := health(t, c)
		if status.DelegatedIpam.Ready || !strings.Contains(strings.Join(status.DelegatedIpam.Reasons, " "), c.CNIConfDir) {
			t.Errorf("ready %v, reasons %q; want not ready because of %s", status.DelegatedIpam.Ready, status.DelegatedIpam.Reasons, c.CNIConfDir)
		}
		stop()
		check.Absent(t, c.SocketPath)
	})
	t.Run("second instance takes over the state directory", func(t *testing.T) {
		c := valid(t)
		stop := serving(t, c)
		second, secondEnded, stopSecond := run(t, c)
		second.await(t, fmt.Sprintf("PID %d", os.Getpid()), secondEnded)
		check.True(t, !second.contains("msg=Serving"), "both instances serve")
		stop()
		second.await(t, "msg=Serving", secondEnded)
		check.NoError(t, stopSecond())
	})
	t.Run("cancelled while waiting for the state directory", func(t *testing.T) {
		c := valid(t)
		lock, err := statedir.Lock(context.Background(), c.StateDir, statedir.Holder{}, nil)
		check.Must(t, err)
		defer lock.Close() //nolint:errcheck // the directory is not used any more
		log, ended, stop := run(t, c)
		log.await(t, "waiting for the state directory", ended)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v; want %v", err, context.Canceled)
		}
	})
	t.Run("unusable journal", testUnusableJournal)
	t.Run("second daemon of the network", testSecondDaemon)
	t.Run("invalid option", func(t *testing.T) {
		c := valid(t)
		c.NodeName = ""
		check.Error(t, Run(context.Background(), c, logrus.New()), "--node-name")
		check.Absent(t, c.StateDir)
	})
	t.Run("socket in use", func(t *testing.T) {
		c := valid(t)
		l, err := net.Listen("unix", c.SocketPath)
		check.Must(t, err)
		defer l.Close()
		free, err := net.Listen("tcp", "127.0.0.1:0")
		check.Must(t, err)
		c.MetricsAddress = free.Addr().String()
		check.Must(t, free.Close())
		check.Error(t, Run(context.Background(), c, logging.Discard()), c.SocketPath)
		again, err := net.Listen("tcp", c.MetricsAddress)
		if err != nil {
			t.Fatalf("the listener of the metrics was not closed: %v", err)
		}
		again.Close()
	})
}

func testUnusableJournal(t *testing.T) {
	c := valid(t)
	write(t, c, "state/journal.db", "not a database")
	stop := serving(t, c)
	// A disk may take longer to respond than a report waits.
	harness.Eventually(t, "the file to be reported", func() error {
		all := health(t, c).DelegatedIpam.Quarantined
		if len(all) != 1 || !strings.Contains(all[0].File, "journal.db-") || !strings.Contains(all[0].Reason, "damaged") {
			return fmt.Errorf("quarantined are %+v", all)
		}
		return nil
	})
	stop()
}

func testSecondDaemon(t *testing.T) {
	c, other := valid(t), valid(t)
	for _, x := range []Config{c, other} {
		write(t, x, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local"}}]}`)
	}
	other.NodeName = c.NodeName
	stop := serving(t, c)
	check.Error(t, Run(context.Background(), other, logging.Discard()), c.StateDir)
	stop()
	serving(t, other)() // after the end of the first
}
