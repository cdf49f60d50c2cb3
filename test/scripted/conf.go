package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// conf is what the plugin reads of a network configuration.
type conf struct {
	Name       string `json:"name"`
	CNIVersion string `json:"cniVersion"`
	IPAM       struct {
		// ScriptDir is the script directory.
		ScriptDir string `json:"scriptDir"`
		// Subnet and Ranges are host-local's: one address from each range set.
		Subnet string         `json:"subnet"`
		Ranges [][]rangeOfNet `json:"ranges"`
		quirks
		// Uplink is put into results as an interface without a sandbox.
		Uplink json.RawMessage `json:"uplink"`
	} `json:"ipam"`
	RuntimeConfig struct {
		IPs []address `json:"ips"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []address `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
	// Valid are the attachments that GC must leave alone.
	Valid []types.GCAttachment `json:"cni.dev/valid-attachments"`
}

// rangeOfNet is one range of a range set. RangeStart, RangeEnd and Gateway
// default as host-local's do.
type rangeOfNet struct {
	Subnet     netip.Prefix `json:"subnet"`
	RangeStart netip.Addr   `json:"rangeStart"`
	RangeEnd   netip.Addr   `json:"rangeEnd"`
	Gateway    netip.Addr   `json:"gateway"`
}

// address is read with or without a prefix length, as CONVENTIONS.md allows.
type address struct{ netip.Addr }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *address) UnmarshalText(text []byte) error {
	bare, _, _ := strings.Cut(string(text), "/")
	return a.Addr.UnmarshalText([]byte(bare))
}

func parseConf(stdin []byte) (conf, error) {
	var c conf
	c.IPAM.quirks = quirksOf(filepath.Base(os.Args[0]))
	if len(stdin) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(stdin, &c); err != nil {
		return c, fmt.Errorf("network configuration: %w", err)
	}
	if c.IPAM.Subnet != "" {
		subnet, err := netip.ParsePrefix(c.IPAM.Subnet)
		if err != nil {
			return c, err
		}
		c.IPAM.Ranges = append([][]rangeOfNet{{{Subnet: subnet}}}, c.IPAM.Ranges...)
	}
	return c, nil
}

// scriptDir is absolute, so that two calls cannot mean two directories.
func (c conf) scriptDir() string {
	if c.IPAM.ScriptDir != "" {
		return c.IPAM.ScriptDir
	}
	path, err := filepath.Abs(os.Args[0])
	if err != nil {
		return os.Args[0] + ".d"
	}
	return path + ".d"
}

// requested returns the addresses asked for by the conventions that are read.
func (c conf) requested(cniArgs string) ([]netip.Addr, error) {
	var asked []address
	if c.reads("runtimeConfig.ips") {
		asked = append(asked, c.RuntimeConfig.IPs...)
	}
	if c.reads("args.cni.ips") {
		asked = append(asked, c.Args.CNI.IPs...)
	}
	if value := cniArg(cniArgs, "IP"); value != "" && c.reads("CNI_ARGS") {
		var ip address
		if err := ip.UnmarshalText([]byte(value)); err != nil {
			return nil, err
		}
		asked = append(asked, ip)
	}
	var ips []netip.Addr
	for _, a := range asked {
		ips = append(ips, a.Addr)
	}
	return ips, nil
}

func (c conf) reads(convention string) bool {
	return len(c.IPAM.Requests) == 0 || slices.Contains(c.IPAM.Requests, convention)
}
