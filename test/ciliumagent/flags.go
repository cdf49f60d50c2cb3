package ciliumagent

// Flags returns the flags of every agent under test: native routing, paths, and limits for a small
// machine. bpffs is mounted at /sys/fs/bpf, and the node's interface is eth0.
func Flags() []string {
	return []string{
		"--routing-mode=native", "--enable-endpoint-routes=true", "--devices=eth0",
		"--bpf-root=/sys/fs/bpf", "--cgroup-root=/run/cilium/cgroupv2",
		"--identity-allocation-mode=crd",
		// Features that are not tested.
		"--kube-proxy-replacement=false", "--enable-l7-proxy=false", "--enable-hubble=false",
		"--enable-ipv4-masquerade=false", "--enable-ipv6-masquerade=false",
		"--bpf-map-dynamic-size-ratio=0", "--bpf-ct-global-tcp-max=65536", "--bpf-ct-global-any-max=65536",
		"--bpf-nat-global-max=65536", "--bpf-neigh-global-max=65536",
	}
}
