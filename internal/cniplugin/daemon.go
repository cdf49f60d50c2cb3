package cniplugin

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/unreachable"
)

// daemon is the daemon that serves at one socket.
type daemon struct {
	socket string
	// timeout limits a call; wait limits how long it is repeated.
	timeout, wait time.Duration
}

// firstPause and maxPause limit the time between two attempts to reach a daemon, which doubles.
const firstPause, maxPause = 50 * time.Millisecond, time.Second

// pause returns the time after a number of attempts, from half of the limit to the limit at random:
// hundreds of processes whose attempts failed at the same moment must not repeat them in step.
func pause(attempts int) time.Duration {
	limit := min(firstPause<<min(attempts-1, 10), maxPause)
	return limit/2 + rand.N(limit/2+1)
}

// errLater is a call to repeat later: the daemon is stopped, did not respond in time, or asks for it.
var errLater = errors.New("try again later")

// later is an errLater. The daemon has asked for a time, or it is 0.
type later struct {
	err   error
	after time.Duration
}

func (l *later) Error() string        { return l.err.Error() }
func (l *later) Unwrap() error        { return l.err }
func (l *later) Is(target error) bool { return target == errLater }

// refusal is a response with an error.
type refusal struct {
	code   int
	reason string
}

func (r *refusal) Error() string { return r.reason }

// call sends a request and returns the body of a successful response. operation is a method and a
// path, header empty or complete lines. All operations may be repeated, so a request whose response
// was lost is repeated, too, unless the caller of this process was killed: its runtime calls DEL next,
// and an ADD after that would not be released.
func (s daemon) call(operation, header string, body []byte) ([]byte, error) {
	begin, caller := time.Now(), os.Getppid()
	for attempts := 1; ; attempts++ {
		response, err := s.attempt(begin.Add(s.timeout), operation, header, body)
		var l *later
		if !errors.As(err, &l) {
			return response, err
		}
		after := l.after + pause(attempts)
		if time.Since(begin)+after > min(s.wait, s.timeout) {
			return response, err
		}
		time.Sleep(after)
		if time.Since(begin) >= s.timeout || os.Getppid() != caller { // a busy machine slept for longer
			return response, err
		}
	}
}

// attempt sends a request once.
func (s daemon) attempt(deadline time.Time, operation, header string, body []byte) ([]byte, error) {
	conn, err := (&net.Dialer{Deadline: deadline}).Dial("unix", s.socket)
	if err != nil {
		return nil, s.failed(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, s.failed(err)
	}
	// HTTP/1.0: one request for each connection, and a response without chunks. net/http would add
	// 0.6 ms to each start of a pod.
	_, err = fmt.Fprintf(conn, "%s HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		operation, header, len(body), body)
	if err != nil {
		return nil, s.failed(err)
	}
	return s.response(conn)
}

// maxResponse limits the header and the body of a response together, in bytes.
const maxResponse = 1 << 20

// response reads a response.
func (s daemon) response(conn io.Reader) ([]byte, error) {
	limited := &io.LimitedReader{R: conn, N: maxResponse}
	r := textproto.NewReader(bufio.NewReader(limited))
	failed := func(err error) ([]byte, error) {
		if limited.N <= 0 {
			return nil, fmt.Errorf("the daemon at %s answered more than %d bytes", s.socket, maxResponse)
		}
		return nil, s.failed(err)
	}
	line, err := r.ReadLine()
	if err != nil {
		return failed(err)
	}
	version, rest, _ := strings.Cut(line, " ")
	digits, _, _ := strings.Cut(rest, " ")
	code, err := strconv.Atoi(digits)
	if err != nil || !strings.HasPrefix(version, "HTTP/1.") {
		return nil, fmt.Errorf("%s does not answer HTTP, but %.80q; expected the socket of delegated-ipam", s.socket, line)
	}
	header, err := r.ReadMIMEHeader()
	if err != nil {
		return failed(err)
	}
	var body []byte
	if length, lengthErr := strconv.ParseInt(header.Get("Content-Length"), 10, 64); lengthErr == nil {
		if length < 0 || length > maxResponse {
			return nil, fmt.Errorf("the daemon at %s answers %d bytes; expected at most %d", s.socket, length, maxResponse)
		}
		body = make([]byte, length)
		_, err = io.ReadFull(r.R, body)
	} else {
		body, err = io.ReadAll(r.R)
	}
	if err != nil || limited.N <= 0 {
		return failed(err)
	}
	if code == 200 {
		return body, nil
	}
	return nil, s.refused(code, header, body)
}

// refused returns the error of a response. Its reason is a JSON string (swagger.yaml, Error).
func (s daemon) refused(code int, header textproto.MIMEHeader, body []byte) error {
	var text string
	_ = json.Unmarshal(body, &text)
	reason := cmp.Or(text, "no reason given")
	err := &refusal{code, fmt.Sprintf("the daemon at %s answered %d: %s", s.socket, code, reason)}
	if seconds, _ := strconv.Atoi(header.Get("Retry-After")); seconds > 0 {
		return &later{err, time.Duration(seconds) * time.Second}
	}
	return err
}

// failed returns the error of a connection. One that ended before the response did is of a daemon
// that was stopped.
func (s daemon) failed(err error) error {
	explained := unreachable.Explain(s.socket, s.timeout, err)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return &later{explained, s.timeout}
	}
	var malformed textproto.ProtocolError // a header that was cut
	if errors.As(err, &malformed) {
		return &later{fmt.Errorf("the daemon at %s: %w", s.socket, err), 0}
	}
	for _, stopped := range []error{syscall.ENOENT, syscall.ECONNREFUSED, syscall.EAGAIN, syscall.EPIPE, syscall.ECONNRESET, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, stopped) {
			return &later{explained, 0}
		}
	}
	return explained
}
