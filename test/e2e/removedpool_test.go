package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The store of a pool that is no longer configured is gone after a reboot: its attachment is lost,
// and can be released.
func TestRemovedPoolLost(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	blue := harness.IPv4Only()
	blue.Name = "blue"
	blue.Subnets = []string{"10.16.0.0/24"}
	n.WriteNetwork(t, "10-blue", blue)
	s := n.Start(t, "--pool=blue=blue")
	a := s.Allocate(t, harness.Request{Owner: "router", Pool: "blue"}).Address
	s.Stop(t)
	harness.Must(t, os.RemoveAll(n.StoreDir))
	n.Reboot(t)

	s = n.Launch(t)
	s.WaitServing(t)
	harness.Eventually(t, "the attachment to be lost", func() error {
		if got := s.List(t); len(got) != 1 || !got[0].Lost {
			return fmt.Errorf("listed: %+v", got)
		}
		return nil
	})
	if o := n.Command(t, "release", a.IPv4, "--pool=blue"); o.ExitCode != 0 {
		t.Errorf("release: %s", o.Stderr)
	}
}
