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

// conf has the fields of a network configuration that the plugin reads.
type conf struct {
	Name       string `json:"name"`
	CNIVersion string `json:"cniVersion"`
	IPAM       struct {
		// ScriptDir is the script directory.
		ScriptDir string `json:"scriptDir"`
		// Subnet and Ranges are as in host-local: one address from each range set.
		Subnet string           `json:"subnet"`
		Ranges [][]addressRange `json:"ranges"`
		quirks
		// Uplink is added to results as an interface without a sandbox.
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
	// Valid are the attachments that GC must keep.
	Valid []types.GCAttachment `json:"cni.dev/valid-attachments"`
}

// addressRange is one range of a range set, with the defaults of host-local.
type addressRange struct {
	Subnet     netip.Prefix `json:"subnet"`
	RangeStart netip.Addr   `json:"rangeStart"`
	RangeEnd   netip.Addr   `json:"rangeEnd"`
	Gateway    netip.Addr   `json:"gateway"`
}

// address has an optional prefix length, as CONVENTIONS.md allows.
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
		c.IPAM.Ranges = append([][]addressRange{{{Subnet: subnet}}}, c.IPAM.Ranges...)
	}
	return c, nil
}

// scriptDir returns an absolute path, because the working directory may differ between calls.
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

// exists reports whether the script directory has a file.
func (c conf) exists(name string) bool {
	_, err := os.Stat(filepath.Join(c.scriptDir(), name))
	return err == nil
}

// requested returns the addresses requested by the conventions that are read.
func (c conf) requested(cniArgs string) ([]netip.Addr, error) {
	var requested []address
	if c.reads("runtimeConfig.ips") {
		requested = append(requested, c.RuntimeConfig.IPs...)
	}
	if c.reads("args.cni.ips") {
		requested = append(requested, c.Args.CNI.IPs...)
	}
	if value := cniArg(cniArgs, "IP"); value != "" && c.reads("CNI_ARGS") {
		var ip address
		if c.IPAM.Requested == "extra" && !strings.Contains(value, "/") {
			return nil, fmt.Errorf("IP=%s: expected an address with a prefix length", value)
		}
		if err := ip.UnmarshalText([]byte(value)); err != nil {
			return nil, err
		}
		requested = append(requested, ip)
	}
	var ips []netip.Addr
	for _, a := range requested {
		ips = append(ips, a.Addr)
	}
	return ips, nil
}

func (c conf) reads(convention string) bool {
	return len(c.IPAM.Requests) == 0 || slices.Contains(c.IPAM.Requests, convention)
}
