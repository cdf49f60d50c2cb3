package daemon

import (
	"net/netip"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func writeRecord(t *testing.T, c Config, r attachment.Record) {
	t.Helper()
	dir, err := statedir.Lock(t.Context(), c.StateDir, statedir.Holder{}, nil)
	check.Must(t, err)
	j := journal.Open(dir, journal.Options{})
	check.Must(t, j.Write(r))
	j.Close()
	check.Must(t, dir.Close())
}

// newRecord returns the record of an attachment in pool blue, whose first invocation is of
// another network. Its next step is due much later.
func newRecord(network, older string) attachment.Record {
	conf := []byte("{}")
	return attachment.Record{
		ContainerID: "cilium-agent-health-0123456789abcdef", Owner: "health", Pool: "blue", Node: "node-1",
		State: attachment.Cooldown, Network: network, Created: time.Now(), ReleaseAt: time.Now().Add(time.Hour),
		Result:      call.Result{Addresses: []call.Address{{Prefix: netip.MustParsePrefix("10.1.2.3/24")}}},
		Invocations: []call.Invocation{{ContainerID: "a", Network: older, Config: conf}, {ContainerID: "b", Network: network, Config: conf}},
	}
}

// startError returns why a daemon does not start; nil if it serves, and then it is stopped.
func startError(t *testing.T, c Config) error {
	t.Helper()
	log, ended, stop := run(t, c)
	for !log.contains("msg=Serving") {
		select {
		case <-log.lines:
		case err := <-ended:
			return err
		}
	}
	check.NoError(t, stop())
	return nil
}

// A network of a record is locked although no pool has it.
func TestRecordedNetworks(t *testing.T) {
	for _, network := range []string{"blue", "navy"} {
		t.Run(network, func(t *testing.T) {
			holder, other := valid(t), valid(t)
			other.NodeName = holder.NodeName
			writeRecord(t, holder, newRecord("blue", "navy"))
			write(t, other, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"`+network+`","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local"}}]}`)

			stop := serving(t, holder)
			err := startError(t, other)
			check.Error(t, err, holder.StateDir, network)
			stop()

			stop = serving(t, other)
			err = startError(t, holder)
			check.Error(t, err, other.StateDir, network)
			stop()
		})
	}
}
