package contract

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/cilium/api/v1/models"
	"github.com/cilium/cilium/api/v1/server/restapi"
	"github.com/cilium/cilium/api/v1/server/restapi/daemon"
	"github.com/cilium/cilium/api/v1/server/restapi/ipam"
	"github.com/cilium/cilium/pkg/api"
	"github.com/cilium/cilium/pkg/ipam/service/ipallocator"
	"github.com/go-openapi/loads"
	"github.com/go-openapi/runtime/middleware"
	"github.com/google/uuid"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// ciliumAgent is the IPAM API of cilium-agent in ipam mode kubernetes: Cilium's generated server
// over Cilium's host-scope ranges. Its handlers do what the handlers of Cilium's pkg/ipam/api and
// the functions that they call in pkg/ipam do in this mode. These cannot be imported: they need
// most of the agent, which takes minutes to build.
type ciliumAgent struct {
	socket string

	mu        sync.Mutex
	ranges    map[string]*ipallocator.Range // of the enabled families
	endpoints map[string]bool               // the addresses that endpoints use
}

var (
	ciliumRanges  = map[string]string{ipv4: "10.15.0.0/24", ipv6: "fd00:15::/112"}
	ciliumRouters = map[string]string{ipv4: "10.15.0.1", ipv6: "fd00:15::1"}
)

const (
	ipv4 = "ipv4"
	ipv6 = "ipv6"
)

// startCiliumAgent serves until the test ends. Only the operations of the daemon are
// implemented.
func startCiliumAgent(t *testing.T, families ...string) *ciliumAgent {
	t.Helper()
	a := &ciliumAgent{socket: filepath.Join(t.TempDir(), "cilium.sock")}
	a.reset(families)
	doc, err := loads.Spec(ciliumSwagger(t))
	check.Must(t, err)
	server := restapi.NewCiliumAPIAPI(doc)
	server.IpamPostIpamHandler = ipam.PostIpamHandlerFunc(a.allocate)
	server.IpamPostIpamIPHandler = ipam.PostIpamIPHandlerFunc(a.restore)
	server.IpamDeleteIpamIPHandler = ipam.DeleteIpamIPHandlerFunc(a.release)
	server.DaemonGetHealthzHandler = daemon.GetHealthzHandlerFunc(func(daemon.GetHealthzParams) middleware.Responder {
		return daemon.NewGetHealthzOK().WithPayload(&models.StatusResponse{})
	})
	server.DaemonGetConfigHandler = daemon.GetConfigHandlerFunc(func(daemon.GetConfigParams) middleware.Responder {
		return daemon.NewGetConfigOK().WithPayload(&models.DaemonConfiguration{})
	})
	l, err := net.Listen("unix", a.socket)
	check.Must(t, err)
	s := &http.Server{Handler: server.Serve(nil)}
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		check.Must(t, s.Close())
		running.Wait()
	})
	return a
}

// reset releases every address.
func (a *ciliumAgent) reset(families []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ranges, a.endpoints = map[string]*ipallocator.Range{}, map[string]bool{}
	for _, f := range families {
		a.ranges[f] = ipallocator.NewCIDRRange(netip.MustParsePrefix(ciliumRanges[f]))
		// The router's address, as excluded addresses are.
		_ = a.ranges[f].Allocate(netip.MustParseAddr(ciliumRouters[f]))
	}
}

// useByEndpoint lets an endpoint use an address.
func (a *ciliumAgent) useByEndpoint(ip string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endpoints[ip] = true
}

// allocate is IpamPostIpamHandler.Handle.
func (a *ciliumAgent) allocate(p ipam.PostIpamParams) middleware.Responder {
	a.mu.Lock()
	defer a.mu.Unlock()
	family := ""
	if p.Family != nil {
		family = strings.ToLower(*p.Family)
	}
	response := &models.IPAMResponse{Address: &models.AddressPair{}, HostAddressing: a.hostAddressing()}
	for _, f := range []string{ipv6, ipv4} {
		if a.ranges[f] == nil || family != "" && family != f {
			continue
		}
		ip, err := next(a.ranges[f])
		if err != nil {
			return api.Error(ipam.PostIpamFailureCode, err)
		}
		details := &models.IPAMAddressResponse{IP: ip.String()}
		if p.Expiration != nil && *p.Expiration {
			details.ExpirationUUID = uuid.NewString()
		}
		if f == ipv4 {
			response.IPv4, response.Address.IPv4, response.Address.IPv4PoolName = details, details.IP, "default"
		} else {
			response.IPv6, response.Address.IPv6, response.Address.IPv6PoolName = details, details.IP, "default"
		}
	}
	return ipam.NewPostIpamCreated().WithPayload(response)
}

// next returns a random free address other than those that requests expect to be free.
func next(r *ipallocator.Range) (netip.Addr, error) {
	for {
		ip, err := r.AllocateNext()
		if err != nil || ip.String() != freeIPv4 && ip.String() != freeIPv6 {
			return ip, err
		}
		defer r.Release(ip)
	}
}

func (a *ciliumAgent) hostAddressing() *models.NodeAddressing {
	element := func(family string) *models.NodeAddressingElement {
		if a.ranges[family] == nil {
			return nil
		}
		return &models.NodeAddressingElement{Enabled: true, IP: ciliumRouters[family], AllocRange: ciliumRanges[family]}
	}
	return &models.NodeAddressing{IPv4: element(ipv4), IPv6: element(ipv6)}
}

// restore is IpamPostIpamIPHandler.Handle, with IPAM.AllocateIPString and allocateIP.
func (a *ciliumAgent) restore(p ipam.PostIpamIPParams) middleware.Responder {
	a.mu.Lock()
	defer a.mu.Unlock()
	ip, err := netip.ParseAddr(p.IP)
	if err != nil {
		return api.Error(ipam.PostIpamIPFailureCode, fmt.Errorf("Invalid IP address: %s", p.IP))
	}
	if p.Pool == nil || *p.Pool == "" {
		return api.Error(ipam.PostIpamIPFailureCode, fmt.Errorf("unable to restore IP %s: pool name must be provided", ip))
	}
	r, err := a.rangeOf(ip)
	if err == nil {
		err = r.Allocate(ip)
	}
	if err != nil {
		return api.Error(ipam.PostIpamIPFailureCode, err)
	}
	return ipam.NewPostIpamIPOK()
}

// release is IpamDeleteIpamIPHandler.Handle, with IPAM.ReleaseIP and releaseIPLocked.
func (a *ciliumAgent) release(p ipam.DeleteIpamIPParams) middleware.Responder {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.endpoints[p.IP] {
		return api.Error(ipam.DeleteIpamIPFailureCode, errors.New("IP is in use by endpoint 1"))
	}
	ip, err := netip.ParseAddr(p.IP)
	if err != nil {
		return api.Error(ipam.DeleteIpamIPInvalidCode, fmt.Errorf("Invalid IP address %s: %w", p.IP, err))
	}
	if p.Pool == nil || *p.Pool == "" {
		return api.Error(ipam.DeleteIpamIPFailureCode, fmt.Errorf("no IPAM pool provided for IP release of %s", ip))
	}
	r, err := a.rangeOf(ip)
	if err != nil {
		return api.Error(ipam.DeleteIpamIPFailureCode, err)
	}
	r.Release(ip)
	return ipam.NewDeleteIpamIPOK()
}

// rangeOf returns the range of an address's family: an IPv4 address in an IPv6 one is IPv6.
func (a *ciliumAgent) rangeOf(ip netip.Addr) (*ipallocator.Range, error) {
	family := ipv6
	if ip.Is4() {
		family = ipv4
	}
	if r := a.ranges[family]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%s allocation disabled", family)
}
