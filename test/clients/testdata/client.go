// Command client calls each IPAM operation with Cilium's Go client. Its argument is a socket.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cilium/cilium/api/v1/client/daemon"
	"github.com/cilium/cilium/pkg/client"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	os.Setenv("CILIUM_SOCK", os.Args[1])
	c, err := client.NewDefaultClientWithTimeout(time.Minute) // waits for GET /config
	if err != nil {
		return err
	}
	router, err := c.IPAMAllocate("", "router", "", false)
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	expiring, err := c.IPAMAllocate(client.AddressFamilyIPv4, "default/pod", "default", true)
	if err != nil {
		return fmt.Errorf("allocate with expiration: %w", err)
	}
	ip := addresses(expiring.Address)[0]
	if err := c.IPAMAllocateIP(ip, "default/pod", ""); err != nil {
		return fmt.Errorf("confirm %s: %w", ip, err)
	}
	if err := c.IPAMAllocateIP("10.15.0.40", "health", ""); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := c.IPAMAllocateIP("10.15.0.40", "ingress", ""); err == nil || !strings.Contains(err.Error(), "409") {
		return fmt.Errorf("restore of a held address: %v; want an error with 409", err)
	}
	health, err := c.Daemon.GetHealthz(daemon.NewGetHealthzParams())
	if err != nil {
		return fmt.Errorf("healthz: %w", err)
	}
	if got := len(health.Payload.Ipam.Allocations); got != 4 {
		return fmt.Errorf("healthz lists %d addresses; want 4", got)
	}
	for _, ip := range append(addresses(router.Address), ip, "10.15.0.40") {
		if err := c.IPAMReleaseIP(ip, ""); err != nil {
			return fmt.Errorf("release of %s: %w", ip, err)
		}
	}
	return nil
}

// addresses returns the addresses of an answer by their JSON keys: the names of the Go fields differ
// between releases.
func addresses(pair any) []string {
	data, err := json.Marshal(pair)
	if err != nil {
		panic(err) // generated types marshal
	}
	keys := map[string]any{}
	if err := json.Unmarshal(data, &keys); err != nil {
		panic(err)
	}
	var all []string
	for _, family := range []string{"ipv4", "ipv6"} {
		if ip, ok := keys[family].(string); ok {
			all = append(all, ip)
		}
	}
	return all
}
