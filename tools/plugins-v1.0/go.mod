module github.com/delegated-ipam/delegated-ipam/tools/plugins-v1.0

go 1.26

tool github.com/containernetworking/plugins/plugins/ipam/host-local

require (
	github.com/alexflint/go-filemutex v1.1.0 // indirect
	github.com/containernetworking/cni v1.0.1 // indirect
	github.com/containernetworking/plugins v1.0.1 // indirect
	github.com/coreos/go-iptables v0.6.0 // indirect
	github.com/safchain/ethtool v0.0.0-20210803160452-9aa261dae9b1 // indirect
	github.com/vishvananda/netlink v1.1.1-0.20210330154013-f5de75959ad5 // indirect
	github.com/vishvananda/netns v0.0.0-20210104183010-2eb08e3e575f // indirect
	golang.org/x/sys v0.0.0-20210809222454-d867a43fc93e // indirect
)
