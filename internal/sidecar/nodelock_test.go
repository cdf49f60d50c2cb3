package sidecar

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// writeRecord writes a record to the state directory, as an earlier run left it.
func writeRecord(t *testing.T, c Config, r record.Record) {
	t.Helper()
	j, err := journal.Open(c.StateDir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Write(r); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// newRecord returns the record of an attachment in pool blue, whose first invocation is of
// another network. Its next step is due much later.
func newRecord(network, older string) record.Record {
	conf := []byte("{}")
	return record.Record{
		ContainerID: "cilium-agent-health-0123456789abcdef", Owner: "health", Pool: "blue", Node: "node-1",
		State: record.Cooldown, Network: network, Created: time.Now(), ReleaseAt: time.Now().Add(time.Hour),
		Result:      call.Result{Addresses: []call.Address{{Prefix: netip.MustParsePrefix("10.1.2.3/24")}}},
		Invocations: []call.Invocation{{ContainerID: "a", Network: older, Config: conf}, {ContainerID: "b", Network: network, Config: conf}},
	}
}

// startError returns why a sidecar does not start; nil if it serves, and then it is stopped.
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
	if err := stop(); err != nil {
		t.Error(err)
	}
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

			log, ended, stop := run(t, holder)
			log.await(t, "msg=Serving", ended)
			err := startError(t, other)
			if err == nil || !strings.Contains(err.Error(), holder.StateDir) || !strings.Contains(err.Error(), network) {
				t.Errorf("while the sidecar with the record runs: %v; want an error that names the network and its state directory", err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}

			log, ended, stop = run(t, other)
			log.await(t, "msg=Serving", ended)
			err = startError(t, holder)
			if err == nil || !strings.Contains(err.Error(), other.StateDir) || !strings.Contains(err.Error(), network) {
				t.Errorf("with a record of a network that another sidecar serves: %v; want an error that names the network and the other state directory", err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
