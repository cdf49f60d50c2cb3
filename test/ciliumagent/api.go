// Package ciliumagent observes a real cilium-agent for tests: its API, and the records about its node.
package ciliumagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// API is a client of an agent's API.
type API struct {
	// Socket is the path of the agent's socket.
	Socket string
}

// Endpoint is an endpoint in the agent's list.
type Endpoint struct {
	// Pod is namespace/name or, since v1.20, the container ID and the interface; empty for endpoints of
	// the agent, such as health.
	Pod string
	// State is "ready" when the datapath is.
	State string
	// IPs are the addresses without link-local ones, which no component allocates.
	IPs []netip.Addr
}

// get gets a resource of the API.
func (a API) get(ctx context.Context, resource string, into any) error {
	client := http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", a.Socket)
			},
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/"+resource, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent answered %s: %s", resource, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// Healthy returns nil if the agent reports that it is healthy.
func (a API) Healthy(ctx context.Context) error {
	var health struct {
		Cilium struct{ State, Msg string }
	}
	if err := a.get(ctx, "healthz", &health); err != nil {
		return err
	}
	if health.Cilium.State != "Ok" {
		return fmt.Errorf("the agent is %s: %s", health.Cilium.State, health.Cilium.Msg)
	}
	return nil
}

// Endpoints returns the agent's endpoints.
func (a API) Endpoints(ctx context.Context) ([]Endpoint, error) {
	var list []struct {
		Status struct {
			State               string
			ExternalIdentifiers struct {
				PodName         string `json:"pod-name"`
				CNIAttachmentID string `json:"cni-attachment-id"`
			} `json:"external-identifiers"`
			Networking struct {
				Addressing []struct{ IPv4, IPv6 string }
			}
		}
	}
	if err := a.get(ctx, "endpoint", &list); err != nil {
		return nil, err
	}
	var all []Endpoint
	var errs []error
	for _, item := range list {
		e := Endpoint{Pod: cmp.Or(item.Status.ExternalIdentifiers.PodName, item.Status.ExternalIdentifiers.CNIAttachmentID), State: item.Status.State}
		for _, pair := range item.Status.Networking.Addressing {
			for _, text := range []string{pair.IPv4, pair.IPv6} {
				if text == "" {
					continue
				}
				ip, err := netip.ParseAddr(text)
				errs = append(errs, err)
				if !ip.IsLinkLocalUnicast() {
					e.IPs = append(e.IPs, ip)
				}
			}
		}
		all = append(all, e)
	}
	return all, errors.Join(errs...)
}

// SharedAddresses returns an error for each address of two endpoints.
func SharedAddresses(list []Endpoint) error {
	var errs []error
	holder := map[netip.Addr]string{}
	for _, e := range list {
		for _, ip := range e.IPs {
			if other, ok := holder[ip]; ok {
				errs = append(errs, fmt.Errorf("%s belongs to two endpoints, %q and %q", ip, other, e.Pod))
			}
			holder[ip] = e.Pod
		}
	}
	return errors.Join(errs...)
}
