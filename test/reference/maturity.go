package main

import (
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/test/versions"
)

// maturity returns the table of README with what the suites run, in the versions of test/versions.
func maturity(string) (map[string]string, error) {
	v := versions.Of
	return map[string]string{
		"maturity": "| | run | by |\n|---|---|---|\n" +
			row3("Cilium's clients", "Go clients of v1.15 to v1.20; cilium-dbg "+v("cilium"), "`make client-test`") +
			row3("cilium-agent", v("cilium")+", unmodified and patched, with its cilium-cni; "+v("cilium-older")+" by `RELEASES=older`", "`make agent-test`") +
			row3("Kubernetes", fmt.Sprintf("two nodes of %s with containerd %s and cilium-agent %s; %s by `RELEASES=older`",
				v("kubernetes"), v("containerd"), v("cilium"), v("kubernetes-older")), "`make cluster-test`") +
			row3("Cilium's chart", v("cilium")+", rendered for Kubernetes 1.29 and "+v("kubernetes"), "`make test-deploy`") +
			row3("[plugins](docs/reference/plugins.md), real", fmt.Sprintf("host-local %s, %s, %s and %s; static %s; dhcp %s and %s; whereabouts %s and %s; calico-ipam v3.28; azure-vnet-ipam %s; spiderpool %s with its agent imitated",
				v("plugins"), v("plugins-v1.9"), v("plugins-v1.4"), v("plugins-v1.0"), v("plugins"), v("plugins"), v("plugins-v1.9"), v("whereabouts"), v("whereabouts-older"),
				v("azure-vnet-ipam"), v("spiderpool")),
				"`make test`, `make test-dhcp`, `make plugin-test`") +
			row3("plugins, imitated from runs of the real ones", "calico-ipam, azure-ipam, cni-ipvlan-vpc-k8s-ipam; any other gets a careful profile", "`make test`") +
			row3("systemd", "the unit, under Debian 12's: start, kill, reload, stop", "`make test-deploy`") +
			row3("nodes", "Linux; amd64 run, arm64 built", "`make image`"),
	}, nil
}

func row3(a, b, c string) string { return fmt.Sprintf("| %s | %s | %s |\n", a, b, c) }
