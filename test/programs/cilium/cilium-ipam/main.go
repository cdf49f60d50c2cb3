// Command cilium serves Cilium's IPAM API as cilium-agent does with ipam:
// kubernetes: its generated server and middleware, its IPAM handlers, its
// host-scope allocator, all in memory. The benchmark compares it with ours.
package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-openapi/loads"

	"github.com/cilium/cilium/api/v1/server"
	"github.com/cilium/cilium/api/v1/server/restapi"
	"github.com/cilium/cilium/pkg/ipam"
	ipamapi "github.com/cilium/cilium/pkg/ipam/api"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	"github.com/cilium/cilium/pkg/option"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cilium SOCKET")
		os.Exit(2)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cilium:", err)
		os.Exit(1)
	}
}

// serve serves a unix socket until it is killed.
func serve(socket string) error {
	handler, err := newHandler()
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 30 * time.Second}
	return s.Serve(l)
}

// newHandler is the API as the agent serves it; only the operations of IPAM
// are implemented.
func newHandler() (http.Handler, error) {
	spec, err := loads.Analyzed(server.SwaggerJSON, "")
	if err != nil {
		return nil, err
	}
	config := option.Config
	config.IPAM, config.IPAMDefaultIPPool = ipamoption.IPAMKubernetes, "default"
	config.EnableIPv4, config.EnableIPv6 = true, false
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	allocator := ipam.NewIPAM(ipam.NewIPAMParams{
		Logger: log, NodeAddressing: nodeAddresses{}, AgentConfig: config, Metadata: onePool{},
	})
	allocator.ConfigureAllocator()

	api := restapi.NewCiliumAPIAPI(spec)
	api.IpamPostIpamHandler = &ipamapi.IpamPostIpamHandler{
		DaemonConfig: config, Logger: log, IPAM: allocator, LocalNodeStore: localNode(),
	}
	api.IpamPostIpamIPHandler = &ipamapi.IpamPostIpamIPHandler{IPAM: allocator}
	api.IpamDeleteIpamIPHandler = &ipamapi.IpamDeleteIpamIPHandler{IPAM: allocator, EndpointManager: noEndpoints{}}
	s := server.NewServer(api)
	s.ConfigureAPI()
	return s.GetHandler(), nil
}
