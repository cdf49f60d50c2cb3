package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// client is a minimal HTTP client, the same in every case. It keeps connections open, as
// Cilium's clients do.
type client struct{ http http.Client }

func newClient(socket string) *client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &client{http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: clients}}}
}

// do sends a request and returns the body of the response, which must have the code.
func (c *client) do(method, path string, code int) []byte {
	resp := must(c.http.Do(must(http.NewRequest(method, "http://localhost"+path, http.NoBody))))
	defer resp.Body.Close()
	body := must(io.ReadAll(resp.Body))
	if resp.StatusCode != code {
		failIf(fmt.Errorf("%s %s: %d %s; want %d", method, path, resp.StatusCode, body, code))
	}
	return body
}

// allocate requests the IPv4 address of an owner, and returns the time in ms.
func (c *client) allocate(owner string) (ip string, took float64) {
	var response struct{ Address struct{ IPv4 string } }
	var body []byte
	took = timed(func() {
		body = c.do(http.MethodPost, "/v1/ipam?family=ipv4&owner="+url.QueryEscape(owner), http.StatusCreated)
	})
	failIf(json.Unmarshal(body, &response))
	return response.Address.IPv4, took
}

// release releases an address, and returns the time in ms.
func (c *client) release(ip string) float64 {
	return timed(func() { c.do(http.MethodDelete, "/v1/ipam/"+ip+"?pool=default", http.StatusOK) })
}

// ready ends with an error unless the daemon is ready.
func (c *client) ready() {
	var status struct {
		Daemon struct {
			Ready   bool
			Reasons []string
		} `json:"delegated-ipam"`
	}
	failIf(json.Unmarshal(c.do(http.MethodGet, "/v1/healthz", http.StatusOK), &status))
	if !status.Daemon.Ready {
		failIf(fmt.Errorf("not ready: %q", status.Daemon.Reasons))
	}
}

// timed runs work and returns its time in ms.
func timed(work func()) float64 {
	begin := time.Now()
	work()
	return ms(time.Since(begin))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
