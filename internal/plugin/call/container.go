package call

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Attachment identifies a container interface, as in the valid attachments of GC (CNI spec 1.1.0,
// section 2).
type Attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// Container is what a container runtime passes to the plugin of a container interface.
type Container struct {
	Attachment
	// NetNS and Args are CNI_NETNS and CNI_ARGS.
	NetNS, Args string
	// CNIArgs and RuntimeConfig are the keys args and runtimeConfig of the network configuration; nil for
	// none.
	CNIArgs, RuntimeConfig json.RawMessage
}

// The keys of a network configuration that the runtime sets for each container interface.
const (
	KeyArgs          = "args"
	KeyRuntimeConfig = "runtimeConfig"
)

// ContainerOf returns what the runtime passed for an invocation.
func ContainerOf(inv Invocation) Container {
	var config map[string]json.RawMessage
	_ = json.Unmarshal(inv.Config, &config) // a record has a valid one
	return Container{
		Attachment: Attachment{inv.ContainerID, inv.IfName}, NetNS: inv.NetNS, Args: inv.Args,
		CNIArgs: config[KeyArgs], RuntimeConfig: config[KeyRuntimeConfig],
	}
}

// Requested returns the addresses that the runtime requests: IP of CNI_ARGS, args.cni.ips and
// runtimeConfig.ips (CNI CONVENTIONS.md). What is not an address is left to the plugin.
func (c Container) Requested() []netip.Addr {
	var args struct{ CNI struct{ IPs []string } }
	var runtime struct{ IPs []string }
	_, _ = json.Unmarshal(c.CNIArgs, &args), json.Unmarshal(c.RuntimeConfig, &runtime)
	texts := slices.Concat(args.CNI.IPs, runtime.IPs)
	for arg := range strings.SplitSeq(c.Args, ";") {
		if list, ok := strings.CutPrefix(arg, "IP="); ok {
			texts = append(texts, strings.Split(list, ",")...)
		}
	}
	var ips []netip.Addr
	for _, text := range texts {
		bare, _, _ := strings.Cut(strings.TrimSpace(text), "/")
		if ip, err := netip.ParseAddr(bare); err == nil && !slices.Contains(ips, ip.Unmap()) {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips
}

// KeyPodAnnotations is the key of runtimeConfig with all annotations of a pod, for a plugin that declares
// this capability. They may have hundreds of kilobytes.
const KeyPodAnnotations = "io.kubernetes.cri.pod-annotations"

// runtimeID is the container ID of a runtime.
var runtimeID = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

// ValidRuntimeID reports whether a text is a container ID of the CNI specification. That (section 2) sets no limit; libcni
// keeps its result in a file whose name has the ID, so that a longer one cannot be added.
func ValidRuntimeID(id string) bool { return len(id) <= 255 && runtimeID.MatchString(id) }

// ifName is what Linux and the CNI specification (section 2, CNI_IFNAME) accept.
var ifName = regexp.MustCompile(`^[^\s/:\x00-\x1f]{1,15}$`)

// ValidIfName reports whether an interface can have a name.
func ValidIfName(name string) bool {
	return len(name) <= 15 && ifName.MatchString(name) && name != "." && name != ".."
}

// OfSandbox reports whether CNI_ARGS name the container as the sandbox of a pod, as those of the kubelet's
// runtimes do. CRI lists it, and its ID is never used again; clients such as nerdctl and ctr name none.
func OfSandbox(args, containerID string) bool {
	return slices.Contains(strings.Split(args, ";"), "K8S_POD_INFRA_CONTAINER_ID="+containerID)
}
