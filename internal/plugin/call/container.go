package call

import (
	"bytes"
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
	NetNS string `json:"netns,omitempty"`
	Args  string `json:"args,omitempty"`
	// CNIArgs and RuntimeConfig are the keys args and runtimeConfig of the network configuration; nil for
	// none.
	CNIArgs       json.RawMessage `json:"cniArgs,omitempty"`
	RuntimeConfig json.RawMessage `json:"runtimeConfig,omitempty"`
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

// notOfAddresses are the keys of runtimeConfig that are not about addresses (CNI CONVENTIONS.md).
var notOfAddresses = []string{"aliases", "bandwidth", "cgroupPath", "deviceID", "infinibandGUID", "mac", "portMappings"}

// SameResult reports whether an ADD with each of two invocations of one plugin returns the same but for the addresses,
// if that does not depend on the pod: the configurations differ at most in what is not about addresses.
func (inv Invocation) SameResult(o Invocation) bool {
	if inv.Network != o.Network || inv.Plugin != o.Plugin || inv.Binary != o.Binary || inv.CNIVersion != o.CNIVersion || len(o.AddOnly) > 0 {
		return false
	}
	if bytes.Equal(inv.Config, o.Config) {
		return true
	}
	a, errA := aboutAddresses(inv.Config)
	b, errB := aboutAddresses(o.Config)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// aboutAddresses returns a configuration without the keys of runtimeConfig that are not about addresses.
func aboutAddresses(config json.RawMessage) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(config, &object); err != nil {
		return nil, err
	}
	if runtime, ok := object[KeyRuntimeConfig].(map[string]any); ok {
		for _, key := range notOfAddresses {
			delete(runtime, key)
		}
		if len(runtime) == 0 {
			delete(object, KeyRuntimeConfig)
		}
	}
	return json.Marshal(object)
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

// ValidRuntimeID reports whether a text is a container ID of the CNI specification. That (section 2) sets no limit; libcni
// keeps its result in a file whose name has the ID, so that a longer one cannot be added.
func ValidRuntimeID(id string) bool {
	const first, further = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "_.-"
	return id != "" && len(id) <= 255 && !strings.Contains(further, id[:1]) && strings.Trim(id, first+further) == ""
}

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
