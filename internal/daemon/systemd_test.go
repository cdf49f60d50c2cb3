package daemon

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// systemd learns that the socket can be used, the readiness, and how long a stop may take.
func TestNotifySystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	check.Must(t, err)
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	var got []string
	await := func(want string) {
		t.Helper()
		wanted := func(state string) bool { return strings.HasPrefix(state, want) }
		for buffer := make([]byte, 4096); !slices.ContainsFunc(got, wanted); {
			n, err := socket.Read(buffer)
			check.Must(t, err)
			got = append(got, strings.Split(string(buffer[:n]), "\n")...)
		}
	}
	c := withSmallPlugin(t)
	program := filepath.Join(c.CNIBinDirs[0], "small")
	check.Must(t, os.Rename(program, program+".away"))
	_, _, stop := run(t, c)
	await("READY=1") // also without a plugin: the agent may have to start first
	await(`STATUS=Not ready: pool "default"`)
	check.Must(t, os.Rename(program+".away", program))
	await("STATUS=Ready")
	check.NoError(t, stop())
	await("STOPPING=1")
	await(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (budget + plugin.MaxCall(c.PluginTimeout)).Microseconds()))
}
