package sidecar

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	anonymous = "POST /v1/ipam HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
	config    = "GET /v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n"
)

func lastRequest(request string) string {
	return strings.Replace(request, "\r\n", "\r\nConnection: close\r\n", 1)
}

// A step of a client without an owner returns the address that it has read, which the client owns.
type step func(net.Conn) (ip string, err error)

func sends(text string) step {
	return func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, text)
		return "", err
	}
}

// pauses ends at any moment until a time, all of which are right.
func pauses(longest time.Duration) step {
	return func(net.Conn) (string, error) {
		time.Sleep(rand.N(longest))
		return "", nil
	}
}

// awaits returns when something can be read, and reads nothing.
func awaits(conn net.Conn) (string, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var peekErr error
	return "", errors.Join(raw.Read(func(fd uintptr) bool {
		_, _, peekErr = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return !errors.Is(peekErr, syscall.EAGAIN)
	}), peekErr)
}

func readsPart(conn net.Conn) (string, error) {
	_, err := io.ReadFull(conn, make([]byte, 30))
	return "", err
}

// reads reads one response, and nothing of the next.
func reads(conn net.Conn) (string, error) {
	res, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	var got models.IPAMResponse
	if err := json.Unmarshal(body, &got); err != nil || got.Address == nil {
		return "", fmt.Errorf("%s %s: %w", res.Status, body, err)
	}
	return got.Address.IPv4, nil
}

func requestsOne(conn net.Conn) (string, error) {
	return sends(strings.Replace(anonymous, "ipam", fmt.Sprintf("ipam/10.15.0.%d", 200+rand.N(50)), 1))(conn)
}

// anonymousClients are clients that close the connection after their steps.
var anonymousClients = map[string][]step{
	"closes before the response":                               {sends(anonymous)},
	"closes at a random time":                                  {sends(anonymous), pauses(30 * time.Millisecond)},
	"closes with the response unread":                          {sends(anonymous), awaits},
	"closes with a part of the response unread":                {sends(anonymous), readsPart},
	"closes its last request's response unread":                {sends(lastRequest(anonymous)), awaits},
	"closes after the server with the response unread":         {sends(lastRequest(anonymous)), pauses(60 * time.Millisecond)},
	"requests one address and closes with the response unread": {requestsOne, awaits},
	"reads the response":                                       {sends(anonymous), reads},
	"reads its last request's response":                        {sends(lastRequest(anonymous)), reads},
	"reads the response and not the next":                      {sends(anonymous), reads, sends(config), awaits},
	"sends two requests and reads one response":                {sends(anonymous + config), reads, awaits},
}

type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

func anonymousAddresses(t *testing.T, c Config) []string {
	t.Helper()
	var all []*models.Attachment
	check.Must(t, json.Unmarshal(request(t, c, http.MethodGet, "/v1/ipam", http.StatusOK), &all))
	var ips []string
	for _, a := range all {
		if ip := a.State; strings.HasPrefix(a.Owner, "anonymous/") {
			for _, at := range a.Addresses {
				ip = at.IP
			}
			ips = append(ips, ip)
		}
	}
	slices.Sort(ips)
	return ips
}

// Of the anonymous attachments those remain whose response was read.
func TestAnonymous(t *testing.T) {
	const each = 10
	c := withSmallPlugin(t)
	c.MaxAttachments = 2 * each * len(anonymousClients)
	c.MaxQueuedRequests = 2 * each * len(anonymousClients) // more than a quarter is reserved
	c.MaxAttachments = each * len(anonymousClients)        // on a busy machine all exist at the same time
	c.ReleaseDelay = time.Hour                             // does not apply to anonymous attachments
	c.MaxAttachments = c.MaxQueuedRequests                 // no client is refused while the unread ones are released
	stop := serving(t, c)

	var all sync.WaitGroup
	var mu sync.Mutex
	var read []string
	for name, client := range anonymousClients {
		for range each {
			all.Go(func() {
				conn, err := net.Dial("unix", c.SocketPath)
				if err != nil {
					t.Error(err)
					return
				}
				for _, step := range client {
					ip, err := step(conn)
					check.True(t, err == nil, "client that %s: %v", name, err)
					if ip != "" {
						mu.Lock()
						read = append(read, ip)
						mu.Unlock()
					}
				}
				check.NoError(t, conn.Close())
			})
		}
	}
	all.Wait()
	slices.Sort(read)
	harness.Eventually(t, "the unread ones to be released", func() error {
		if got := anonymousAddresses(t, c); !slices.Equal(got, read) {
			return fmt.Errorf("%d anonymous attachments remain: %v; want the %d whose response was read: %v", len(got), got, len(read), read)
		}
		return nil
	})
	if want := 4 * each; len(read) != want {
		t.Errorf("%d clients have read their response; want %d", len(read), want)
	}
	stop()
}
