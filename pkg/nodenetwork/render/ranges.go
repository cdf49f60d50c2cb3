package render

import (
	"encoding/json"
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/pkg/cniconf"
)

// ipam has the fields of an ipam object that name addresses: those of host-local (subnet, ranges) and
// of static (addresses).
type ipam struct {
	addressRange
	Ranges    [][]addressRange `json:"ranges"`
	Addresses []struct {
		Address string `json:"address"`
	} `json:"addresses"`
}

type addressRange struct {
	Subnet     string `json:"subnet,omitempty"`
	RangeStart string `json:"rangeStart,omitempty"`
	RangeEnd   string `json:"rangeEnd,omitempty"`
}

// rangesOf returns each range or address from which a network allocates, as JSON. If the configuration
// has none of these fields, it returns the whole ipam object.
func rangesOf(n cniconf.Network) ([]string, error) {
	var plugin struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(n.PluginConfig, &plugin); err != nil {
		return nil, err
	}
	var found ipam
	if err := json.Unmarshal(plugin.IPAM, &found); err != nil {
		return nil, fmt.Errorf("cannot read the ipam object of the result: %w; expected the fields that plugin %s documents", err, n.IPAMType)
	}
	var all []string
	add := func(r addressRange) error {
		if r == (addressRange{}) {
			return nil
		}
		text, err := json.Marshal(r)
		all = append(all, string(text))
		return err
	}
	if err := add(found.addressRange); err != nil {
		return nil, err
	}
	for _, set := range found.Ranges {
		for _, r := range set {
			if err := add(r); err != nil {
				return nil, err
			}
		}
	}
	for _, a := range found.Addresses {
		all = append(all, a.Address)
	}
	if len(all) == 0 {
		all = []string{string(plugin.IPAM)}
	}
	return all, nil
}
