package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// daemon serves canned responses on a unix socket in place of `delegated-ipam serve`. stop ends
// it.
func daemon(responses map[string]string) (socket string, stop func()) {
	mux := http.NewServeMux()
	for pattern, body := range responses {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	}
	return listen(mux)
}

func connected(responses map[string]string) (c *client.Client, stop func()) {
	socket, stop := daemon(responses)
	c, err := client.New(socket)
	if err != nil {
		panic(err)
	}
	return c, stop
}

func Example() {
	socket, stop := daemon(map[string]string{
		"POST /v1/ipam":             `{"address":{"ipv4":"10.15.0.2","ipv6":"fd00:15::2"},"host-addressing":{}}`,
		"DELETE /v1/ipam/10.15.0.2": ``,
	})
	defer stop()

	c, err := client.New(socket) // client.DefaultSocket on a node
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	got, err := c.Allocate(ctx, "router", client.AllocateOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Println(got.Address.IPv4, got.Address.IPv6)
	fmt.Println(c.Release(ctx, netip.MustParseAddr(got.Address.IPv4), client.ReleaseOptions{}))
	// Output:
	// 10.15.0.2 fd00:15::2
	// <nil>
}

func ExampleClient_Allocate() {
	c, stop := connected(map[string]string{
		"POST /v1/ipam": `{"address":{"ipv4":"10.15.0.2"},"ipv4":{"gateway":"10.15.0.1","cidrs":["10.15.0.0/24"]},"host-addressing":{}}`,
	})
	defer stop()
	got, err := c.Allocate(context.Background(), "kube-system/coredns-1", client.AllocateOptions{Family: client.IPv4})
	if err != nil {
		panic(err)
	}
	fmt.Println(got.Address.IPv4, "via", got.IPv4.Gateway, "in", got.IPv4.Cidrs)
	// Output: 10.15.0.2 via 10.15.0.1 in [10.15.0.0/24]
}

func ExampleClient_Restore() {
	c, stop := connected(map[string]string{"POST /v1/ipam/10.15.0.2": ``})
	defer stop()
	err := c.Restore(context.Background(), netip.MustParseAddr("10.15.0.2"), "router", client.RestoreOptions{})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleClient_Release() {
	c, stop := connected(nil)
	defer stop()
	err := c.Release(context.Background(), netip.MustParseAddr("10.15.0.2"), client.ReleaseOptions{SkipReleaseDelay: true})
	if errors.Is(err, client.ErrNotFound) {
		fmt.Println("was not allocated")
	}
	// Output: was not allocated
}

func ExampleClient_List() {
	c, stop := connected(map[string]string{
		"GET /v1/ipam": `[{"owner":"router","pool":"default","state":"held","addresses":[{"family":"ipv4","ip":"10.15.0.2"}],"claims":["ipv4"]}]`,
	})
	defer stop()
	all, err := c.List(context.Background())
	if err != nil {
		panic(err)
	}
	for _, a := range all {
		fmt.Println(a.Owner, a.State, client.Allocated(a))
	}
	// Output: router held [10.15.0.2]
}

func ExampleClient_Status() {
	c, stop := connected(map[string]string{
		"GET /v1/healthz": `{"delegated-ipam":{"version":"v1.2.3","node-name":"worker","ready":false,"reasons":["no CNI configuration"]}}`,
	})
	defer stop()
	s, err := c.Status(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(s.DelegatedIpam.NodeName, s.DelegatedIpam.Ready, s.DelegatedIpam.Reasons)
	// Output: worker false [no CNI configuration]
}

func ExampleError() {
	c, stop := connected(nil)
	defer stop()
	err := c.Release(context.Background(), netip.MustParseAddr("10.15.0.2"), client.ReleaseOptions{})
	var refused *client.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.StatusCode, refused.RetryAfter)
	}
	// Output: 404 0s
}
