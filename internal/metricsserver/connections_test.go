package metricsserver

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// countingListener counts the connections that the server has not closed.
type countingListener struct {
	net.Listener
	mu         sync.Mutex
	open, most int
}

type countedConn struct {
	net.Conn
	onClose func()
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.add(1)
	return &countedConn{c, sync.OnceFunc(func() { l.add(-1) })}, nil
}

func (c *countedConn) Close() error {
	c.onClose()
	return c.Conn.Close()
}

func (l *countingListener) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
	l.most = max(l.most, l.open)
}

// fixture is a server with one metric and the check /healthz.
type fixture struct {
	*countingListener
	client *http.Client
}

func serve(t *testing.T, metric prometheus.Collector) fixture {
	t.Helper()
	l, err := Listen(t.Context(), "127.0.0.1:0")
	check.Must(t, err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metric)
	f := fixture{&countingListener{Listener: l}, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, f, Mux(registry, map[string]func() error{"/healthz": func() error { return nil }}))
	}()
	t.Cleanup(func() {
		end()
		check.Must(t, <-ended)
	})
	return f
}

// get returns the status code of a request on a new connection, as kubelet and a scraper send it.
func (f fixture) get(t *testing.T, path string) int {
	t.Helper()
	resp, err := f.client.Get("http://" + f.Addr().String() + path)
	check.Must(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	check.Must(t, err)
	return resp.StatusCode
}

func (f fixture) wantServed(t *testing.T) {
	t.Helper()
	check.Equal(t, "status of a scrape", f.get(t, Path), http.StatusOK)
	check.Equal(t, "status of a probe", f.get(t, "/healthz"), http.StatusOK)
}

// hold opens a connection until the end of the test and sends a text.
func (f fixture) hold(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", f.Addr().String())
	check.Must(t, err)
	t.Cleanup(func() { c.Close() })
	_, _ = io.WriteString(c, text) // it may be closed already
	return c
}

func aGauge(help string) prometheus.Collector {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_gauge", Help: help})
}

const scrape = "GET " + Path + " HTTP/1.1\r\nHost: x\r\n\r\n"

//evidence:operate/security 8,000 connections, idle after a scrape, without a request, or with an unfinished one
func TestManyConnections(t *testing.T) {
	for name, c := range map[string]struct {
		sent string
		read bool
	}{
		"after a scrape": {scrape, true},
		"nothing sent":   {"", false},
		"half a header":  {scrape[:20], false},
		"no body":        {"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, aGauge("A gauge."))
			for i := range 8 * maxConnections {
				conn := f.hold(t, c.sent)
				if c.read {
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					check.Must(t, err)
					_, err = io.Copy(io.Discard, resp.Body)
					check.Must(t, err)
				}
				if i%(2*maxConnections) == 0 {
					f.wantServed(t)
				}
			}
			f.wantServed(t)
			f.mu.Lock()
			defer f.mu.Unlock()
			check.True(t, f.most <= maxConnections+1, "%d connections were open; want at most %d and the new one", f.most, maxConnections)
		})
	}
}

func TestClosedConnection(t *testing.T) {
	s := connections{open: map[net.Conn]connection{}}
	var all []*countedConn
	closed := -1
	accept := func(then ...http.ConnState) {
		server, client := net.Pipe()
		t.Cleanup(func() { client.Close() })
		n := len(all)
		all = append(all, &countedConn{server, func() { closed = n }})
		for _, state := range append([]http.ConnState{http.StateNew}, then...) {
			s.track(all[n], state)
		}
	}
	want := func(n int) {
		t.Helper()
		accept(http.StateActive)
		check.Equal(t, "closed connection", closed, n)
	}
	accept(http.StateActive)
	accept()
	accept(http.StateActive, http.StateIdle)
	for len(all) < maxConnections {
		accept(http.StateActive)
	}
	check.Equal(t, "closed below the limit", closed, -1)
	s.track(all[1], http.StateIdle) // later than the state of the next one
	want(2)
	want(1)
	want(0)
	s.track(all[3], http.StateIdle)
	s.track(all[4], http.StateClosed)
	s.track(all[0], http.StateIdle) // net/http has not yet noticed that it is closed
	closed = -1
	want(-1)
	want(3)
	want(5)
}

//evidence:operate/security many concurrent scrapes, or responses that are not read
func TestScrapesAtOnce(t *testing.T) {
	began, proceed := make(chan struct{}), make(chan struct{})
	var collected atomic.Int32
	f := serve(t, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "a_gauge"}, func() float64 {
		if collected.Add(1) <= maxScrapes {
			began <- struct{}{}
			<-proceed
		}
		return 0
	}))
	var scrapes sync.WaitGroup
	for range maxScrapes {
		scrapes.Go(func() { check.Equal(t, "status of a scrape", f.get(t, Path), http.StatusOK) })
		<-began
	}
	check.Equal(t, "status of one scrape more", f.get(t, Path), http.StatusServiceUnavailable)
	check.Equal(t, "status of a probe", f.get(t, "/healthz"), http.StatusOK)
	close(proceed)
	scrapes.Wait()
}

// Clients that do not read their response prevent no scrape.
//
//evidence:operate/security many concurrent scrapes, or responses that are not read
func TestUnreadScrapes(t *testing.T) {
	f := serve(t, aGauge(strings.Repeat("x", 6<<20))) // more than the kernel buffers
	for range maxScrapes {
		c := f.hold(t, scrape)
		_, err := c.Read(make([]byte, 1))
		check.Must(t, err)
	}
	f.wantServed(t)
}

//evidence:operate/security a header of more than 5 KiB; one not complete after 10 s; an idle connection of 20 s
func TestLongHeader(t *testing.T) {
	f := serve(t, aGauge("A gauge."))
	conn := f.hold(t, strings.Replace(scrape, "Host", "X: "+strings.Repeat("x", 8<<10)+"\r\nHost", 1))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check.Must(t, err)
	check.Equal(t, "status", resp.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
}
