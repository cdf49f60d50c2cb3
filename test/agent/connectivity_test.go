package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	"github.com/vishvananda/netns"
)

const (
	podPort = "8080"
	// healthPort is the port of the agent's health endpoint (--cluster-health-port).
	healthPort = "4240"
)

// inNetns calls f on a thread in a network namespace. Sockets of f stay in the namespace. The thread
// exits afterwards, because it must not run other goroutines.
func inNetns(namespace string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without unlock the runtime discards the thread
		h, err := netns.GetFromName(namespace)
		if err == nil {
			err = netns.Set(h)
			h.Close()
		}
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

// serve sends the pod's name on every connection to the pod.
func (p *pod) serve() error {
	err := inNetns(p.netns(), func() error {
		var err error
		p.server, err = net.Listen("tcp", net.JoinHostPort("", podPort))
		return err
	})
	if err != nil {
		return err
	}
	go func(server net.Listener, name string) {
		for {
			c, err := server.Accept()
			if err != nil {
				return // dropPod has closed the listener
			}
			fmt.Fprint(c, name)
			c.Close()
		}
	}(p.server, p.name)
	return nil
}

// checkReachable connects to each address of a pod from the current network namespace, and wants the
// pod's name in the response.
func checkReachable(ctx context.Context, name string, ips []netip.Addr) error {
	for _, ip := range ips {
		answer, err := readAll(ctx, net.JoinHostPort(ip.String(), podPort))
		if err != nil {
			return fmt.Errorf("pod %s is not reachable at %s: %w", name, ip, err)
		}
		if answer != name {
			return fmt.Errorf("the server at %s of pod %s is %q", ip, name, answer)
		}
	}
	return nil
}

func readAll(ctx context.Context, address string) (string, error) {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}

// checkReachableFrom connects from another pod.
func (p *pod) checkReachableFrom(ctx context.Context, other *pod) error {
	err := inNetns(other.netns(), func() error { return checkReachable(ctx, p.name, p.ips) })
	if err != nil {
		return fmt.Errorf("from pod %s: %w", other.name, err)
	}
	return nil
}

// checkHealthReachable sends a request to the health endpoint, as cilium-health on other nodes does.
func checkHealthReachable(ctx context.Context, ip netip.Addr) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(ip.String(), healthPort)+"/hello", nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the health endpoint answered %s", response.Status)
	}
	return nil
}
