package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// versionsOnly is a plugin that succeeds without a result.
const versionsOnly = `#!/bin/sh
[ "$CNI_COMMAND" != VERSION ] || echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'
`

// Each request has the leases of its moment.
func TestPoolAddresses(t *testing.T) {
	c := valid(t)
	store := filepath.Join(filepath.Dir(c.SocketPath), "networks")
	write(t, c, "bin/host-local", versionsOnly)
	check.Must(t, os.Chmod(filepath.Join(c.CNIBinDirs[0], "host-local"), 0o700))
	write(t, c, "net.d/1.conflist", `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local",
		"dataDir":"`+store+`","ranges":[[{"subnet":"fd00::/126"}],[{"subnet":"10.1.0.0/29"}]]}}]}`)
	write(t, c, "networks/net/10.1.0.2", "")
	write(t, c, "networks/net/10.2.0.2", "")
	shown := func() string {
		text, err := json.Marshal(health(t, c).DelegatedIpam.Pools[0].Addresses)
		check.Must(t, err)
		return string(text)
	}
	stop := serving(t, c)
	const first = `[{"family":"ipv4","free":4,"total":5,"used":1},{"family":"ipv6","free":2,"total":2,"used":0}]`
	harness.Eventually(t, "the addresses", func() error {
		if got := shown(); got != first {
			return errors.New(got)
		}
		return nil
	})
	write(t, c, "networks/net/fd00::2", "")
	if got, want := shown(), `[{"family":"ipv4","free":4,"total":5,"used":1},{"family":"ipv6","free":1,"total":2,"used":1}]`; got != want {
		t.Errorf("after another lease the status has %s; want %s", got, want)
	}
	stop()
}
