package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// conf is what the plugin reads of a network configuration.
type conf struct {
	Name       string `json:"name"`
	CNIVersion string `json:"cniVersion"`
	IPAM       struct {
		// ScriptDir is the script folder.
		ScriptDir string `json:"scriptDir"`
		// Subnet and Ranges are host-local's: one address from each range set.
		Subnet string         `json:"subnet"`
		Ranges [][]rangeOfNet `json:"ranges"`
		// RepeatedAdd is "refused" (default), "same" or "another".
		RepeatedAdd string `json:"repeatedAdd"`
		// Check is "presence" (default), "always-yes" or "always-no".
		Check string `json:"check"`
		// Uplink is put into results as an interface without a sandbox.
		Uplink json.RawMessage `json:"uplink"`
	} `json:"ipam"`
	RuntimeConfig struct {
		IPs []netip.Addr `json:"ips"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []netip.Addr `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
}

// rangeOfNet is one range of a range set. RangeStart, RangeEnd and Gateway
// default as host-local's do.
type rangeOfNet struct {
	Subnet     netip.Prefix `json:"subnet"`
	RangeStart netip.Addr   `json:"rangeStart"`
	RangeEnd   netip.Addr   `json:"rangeEnd"`
	Gateway    netip.Addr   `json:"gateway"`
}

func parseConf(stdin []byte) (conf, error) {
	var c conf
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

// scriptDir is absolute, so that two calls cannot mean two folders.
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

// requested returns the addresses asked for by any convention.
func (c conf) requested(cniArgs string) ([]netip.Addr, error) {
	ips := append(c.RuntimeConfig.IPs, c.Args.CNI.IPs...)
	for pair := range strings.SplitSeq(cniArgs, ";") {
		value, ok := strings.CutPrefix(pair, "IP=")
		if !ok {
			continue
		}
		ip, err := netip.ParseAddr(value)
		if err != nil {
			return nil, err
		}
		ips = append(ips, ip)
	}
	return ips, nil
}
