package faults

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// floodConnections are opened by each user, wave by wave.
	floodConnections = 20000
	floodWave        = 4000

	// floodMemory limits the resident memory of the sidecar in bytes; its container has 256 MiB.
	floodMemory = 128 << 20
)

// A user who may call and one who may not open connections and send requests that never end.
//
//evidence:design/reliability 20,000 connections of one user with unfinished requests
func TestConnectionFlood(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		harness.Skipf(t, "only root can connect as another user")
	}
	needDescriptors(t, 2*floodWave)
	st := newStats(t, overload)
	for name, request := range unfinishedRequests() {
		for user, uid := range map[string]int{"allowed user": otherUID, "refused user": foreignUID} {
			t.Run(user+", "+name, func(t *testing.T) {
				st.countCase(t)
				n := lightNode(t)
				harness.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
				s := n.Start(t, "--socket-mode=0666", fmt.Sprintf("--allow-uids=%d", otherUID))
				held := s.AllocateFor(t, "router")
				for range floodConnections / floodWave {
					wave := floodAs(t, n.Socket, uid, request)
					wantServed(t, s, held)
					for _, conn := range wave {
						conn.Close()
					}
				}
				peak := peakMemory(t, s)
				t.Logf("the peak of the sidecar's resident memory is %d MiB", peak>>20)
				if peak > floodMemory {
					t.Errorf("the peak of the sidecar's resident memory is %d MiB; want at most %d", peak>>20, floodMemory>>20)
				}
				harness.Eventually(t, "the user to be answered again", func() error { return healthAs(s, uid) })
			})
		}
	}
}

// healthAs returns an error if a user does not get the health.
func healthAs(s *harness.Sidecar, uid int) error {
	conn, err := s.DialAs(harness.User{UID: uid, GID: uid})
	if err != nil {
		return err
	}
	defer conn.Close()
	return getOnce(conn, "/v1/healthz")
}

// unfinishedRequests are the requests of a flood.
func unfinishedRequests() map[string]string {
	const start = "GET /v1/ipam HTTP/1.1\r\nHost: localhost\r\n"
	var fields strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&fields, "%x:\n", i)
	}
	return map[string]string{
		"64 KiB of header":                 start + "X: " + strings.Repeat("x", 64<<10),
		"header just below the limit":      start + "X: " + strings.Repeat("x", 8000),
		"header of many fields":            start + fields.String(),
		"request whose body never arrives": "POST /v1/ipam?owner=flood HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n",
	}
}

// floodAs opens floodWave connections as a user and sends a request on each that the sidecar
// accepts. The connections stay open.
func floodAs(t *testing.T, socket string, uid int, request string) []net.Conn {
	t.Helper()
	var wave []net.Conn
	var err error
	userErr := harness.RunAs(harness.User{UID: uid, GID: uid}, func() {
		for len(wave) < floodWave && err == nil {
			var conn net.Conn
			if conn, err = dial(socket); err != nil {
				return
			}
			wave = append(wave, conn)
			if _, err = io.WriteString(conn, request); errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
				err = nil // the sidecar has closed the connection
			}
		}
	})
	harness.Must(t, errors.Join(userErr, err))
	return wave
}
