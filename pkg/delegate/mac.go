package delegate

import (
	"fmt"
	"net"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
)

// masterMAC returns the MAC of the uplink: the first interface without a
// sandbox, by its own word or by that of the link of its name. It is empty if
// the plugin names no such interface. A link that cannot be found is an error,
// as it is in cilium-cni: pods behind an unknown uplink have no route out.
func masterMAC(interfaces []*current.Interface, linkMAC func(string) (string, error)) (string, error) {
	for _, i := range interfaces {
		if i == nil {
			return "", fmt.Errorf("its result has an empty entry in interfaces")
		}
		if i.Sandbox != "" {
			continue
		}
		if i.Mac == "" && i.Name == "" {
			return "", nil // it says nothing of the uplink, and cilium-cni goes on without
		}
		if i.Mac == "" {
			return linkMAC(i.Name)
		}
		mac, err := net.ParseMAC(i.Mac)
		if err != nil {
			return "", fmt.Errorf("its result has interface %q: %w", i.Name, err)
		}
		return mac.String(), nil
	}
	return "", nil
}

// linkMAC asks the kernel.
func linkMAC(name string) (string, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return "", fmt.Errorf("its result names the uplink %q without a MAC, which cannot be looked up: %w", name, err)
	}
	return link.Attrs().HardwareAddr.String(), nil
}
