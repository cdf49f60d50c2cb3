package agent

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

const (
	// clusterNetns is the namespace of etcd and the API server, connected by a veth pair. The
	// node is the namespace of the test.
	clusterNetns = "cluster"
	apiHost      = "192.0.2.1"
)

// connectNode connects the node and the cluster by a veth pair, which is eth0 on the node.
func (tb *testbed) connectNode(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"ip netns add " + clusterNetns,
		"ip -n " + clusterNetns + " link set lo up",
		"ip link add eth0 type veth peer name node netns " + clusterNetns,
		"ip -n " + clusterNetns + " addr add " + apiHost + "/24 dev node",
		"ip -n " + clusterNetns + " addr add 2001:db8::1/64 dev node nodad",
		"ip -n " + clusterNetns + " link set node up",
		"ip addr add 192.0.2.2/24 dev eth0",
		"ip addr add 2001:db8::2/64 dev eth0 nodad",
		"ip link set eth0 up",
		"ip route add default via " + apiHost,
		"ip -6 route add default via 2001:db8::1",
	} {
		must(t, command(line))
	}
}

// command runs a command line.
func command(line string) error {
	words := strings.Fields(line)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return nil
}
