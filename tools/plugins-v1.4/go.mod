module github.com/delegated-ipam/delegated-ipam/tools/plugins-v1.4

go 1.26

tool github.com/containernetworking/plugins/plugins/ipam/host-local

require (
	github.com/alexflint/go-filemutex v1.2.0 // indirect
	github.com/containernetworking/cni v1.1.2 // indirect
	github.com/containernetworking/plugins v1.4.0 // indirect
	github.com/coreos/go-iptables v0.7.0 // indirect
	github.com/safchain/ethtool v0.3.0 // indirect
	github.com/vishvananda/netlink v1.2.1-beta.2 // indirect
	github.com/vishvananda/netns v0.0.4 // indirect
	golang.org/x/sys v0.15.0 // indirect
)
