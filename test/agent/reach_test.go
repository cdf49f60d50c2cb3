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
	// healthPort is where the agent's health endpoint listens (--cluster-health-port).
	healthPort = "4240"
)

// within runs f on a thread that is in a network namespace. The sockets that f
// makes stay in it. The thread ends with it, as it must not run anything else.
func within(namespace string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without unlock: the thread goes away
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

// serve answers every connection in the pod with the pod's name.
func (p *pod) serve() error {
	err := within(p.netns(), func() error {
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
				return // the pod is being taken down
			}
			fmt.Fprint(c, name)
			c.Close()
		}
	}(p.server, p.name)
	return nil
}

// reach connects from the network namespace of the caller to a pod, on each of
// its addresses, and wants the pod's own answer.
func reach(ctx context.Context, name string, ips []netip.Addr) error {
	for _, ip := range ips {
		answer, err := read(ctx, net.JoinHostPort(ip.String(), podPort))
		if err != nil {
			return fmt.Errorf("pod %s does not answer on %s: %w", name, ip, err)
		}
		if answer != name {
			return fmt.Errorf("on %s of pod %s answers %q", ip, name, answer)
		}
	}
	return nil
}

func read(ctx context.Context, address string) (string, error) {
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

// reachFrom connects from one pod to another.
func (p *pod) reachFrom(ctx context.Context, other *pod) error {
	err := within(other.netns(), func() error { return reach(ctx, p.name, p.ips) })
	if err != nil {
		return fmt.Errorf("from pod %s: %w", other.name, err)
	}
	return nil
}

// reachHealth asks the health endpoint, as cilium-health on other nodes does.
func reachHealth(ctx context.Context, ip netip.Addr) error {
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
		return fmt.Errorf("the health endpoint answers %s", response.Status)
	}
	return nil
}
