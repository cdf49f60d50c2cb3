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

// client is a minimal HTTP client, the same in every case. It keeps one connection open, as
// Cilium's clients do.
type client struct{ http http.Client }

func newClient(socket string) *client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &client{http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true}}}
}

// do sends a request and returns the body of the response, which must have the code.
func (c *client) do(method, path string, code int) ([]byte, error) {
	req, err := http.NewRequest(method, "http://localhost"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != code {
		err = fmt.Errorf("%s %s: %d %s; want %d", method, path, resp.StatusCode, body, code)
	}
	return body, err
}

// allocate requests the IPv4 address of an owner and measures the time.
func (c *client) allocate(owner string) (ip string, took time.Duration, err error) {
	var response struct {
		Address struct {
			IPv4 string `json:"ipv4"`
		} `json:"address"`
	}
	var body []byte
	took, err = timed(func() (err error) {
		body, err = c.do(http.MethodPost, "/v1/ipam?family=ipv4&owner="+url.QueryEscape(owner), http.StatusCreated)
		return err
	})
	if err == nil {
		err = json.Unmarshal(body, &response)
	}
	return response.Address.IPv4, took, err
}

// release releases an address and measures the time.
func (c *client) release(ip string) (time.Duration, error) {
	return timed(func() error {
		_, err := c.do(http.MethodDelete, "/v1/ipam/"+ip+"?pool=default", http.StatusOK)
		return err
	})
}

// ready returns an error unless the sidecar is ready.
func (c *client) ready() error {
	body, err := c.do(http.MethodGet, "/v1/healthz", http.StatusOK)
	if err != nil {
		return err
	}
	var status struct {
		DelegatedIPAM struct {
			Ready   bool     `json:"ready"`
			Reasons []string `json:"reasons"`
		} `json:"delegated-ipam"`
	}
	if err := json.Unmarshal(body, &status); err != nil {
		return err
	}
	if !status.DelegatedIPAM.Ready {
		return fmt.Errorf("not ready: %q", status.DelegatedIPAM.Reasons)
	}
	return nil
}
