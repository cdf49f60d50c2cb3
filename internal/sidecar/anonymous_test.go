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
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	anonymous = "POST /v1/ipam HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
	config    = "GET /v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n"
)

// lastRequest is a request after which the connection ends.
func lastRequest(request string) string {
	return strings.Replace(request, "\r\n", "\r\nConnection: close\r\n", 1)
}

// awaitBytes returns when something can be read from a connection, and reads nothing.
func awaitBytes(conn net.Conn) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peekErr error
	return errors.Join(raw.Read(func(fd uintptr) bool {
		_, _, peekErr = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return !errors.Is(peekErr, syscall.EAGAIN)
	}), peekErr)
}

// readResponse reads one response and returns the address in it.
func readResponse(r *bufio.Reader) (ip string, err error) {
	res, err := http.ReadResponse(r, nil)
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

// anonymousClients are clients without an owner. Each returns the address that it has read,
// which it owns from then on.
var anonymousClients = map[string]func(net.Conn) (string, error){
	"closes before the response": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, anonymous)
		return "", err
	},
	"closes at a random time": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, anonymous)
		time.Sleep(rand.N(30 * time.Millisecond)) // any moment is right
		return "", err
	},
	"closes with the response unread": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, anonymous)
		return "", errors.Join(err, awaitBytes(conn))
	},
	"closes with a part of the response unread": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, anonymous)
		_, readErr := io.ReadFull(conn, make([]byte, 30))
		return "", errors.Join(err, readErr)
	},
	"closes its last request's response unread": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, lastRequest(anonymous))
		return "", errors.Join(err, awaitBytes(conn))
	},
	"closes after the server with the response unread": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, lastRequest(anonymous))
		time.Sleep(rand.N(60 * time.Millisecond)) // any moment is right
		return "", err
	},
	"requests one address and closes with the response unread": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, strings.Replace(anonymous, "ipam", fmt.Sprintf("ipam/10.15.0.%d", 200+rand.N(50)), 1))
		return "", errors.Join(err, awaitBytes(conn))
	},
	"reads the response": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, anonymous)
		ip, readErr := readResponse(bufio.NewReader(conn))
		return ip, errors.Join(err, readErr)
	},
	"reads its last request's response": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, lastRequest(anonymous))
		ip, readErr := readResponse(bufio.NewReader(conn))
		return ip, errors.Join(err, readErr)
	},
	"reads the response and not the next": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, anonymous)
		ip, readErr := readResponse(bufio.NewReader(conn))
		_, nextErr := io.WriteString(conn, config)
		return ip, errors.Join(err, readErr, nextErr, awaitBytes(conn))
	},
	"sends two requests and reads one response": func(conn net.Conn) (string, error) {
		_, err := io.WriteString(conn, anonymous+config)
		// One byte at a time, so that nothing of the second is read.
		ip, readErr := readResponse(bufio.NewReaderSize(oneByte{conn}, 16))
		return ip, errors.Join(err, readErr, awaitBytes(conn))
	},
}

// oneByte reads one byte at a time.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

// anonymousAddresses returns the addresses of attachments with a generated owner.
func anonymousAddresses(t *testing.T, c Config) []string {
	t.Helper()
	var all []*models.Attachment
	if err := json.Unmarshal(request(t, c, http.MethodGet, "/v1/ipam", http.StatusOK), &all); err != nil {
		t.Fatal(err)
	}
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
	c.MaxQueuedRequests = each * len(anonymousClients)
	c.ReleaseDelay = time.Hour // does not apply to anonymous attachments
	log, ended, stop := run(t, c)
	log.await(t, "msg=Serving", ended)

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
				ip, err := client(conn)
				if err != nil {
					t.Errorf("client that %s: %v", name, err)
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
				if ip != "" {
					mu.Lock()
					defer mu.Unlock()
					read = append(read, ip)
				}
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
	if err := stop(); err != nil {
		t.Error(err)
	}
}
