package cniconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// The file is valid, but has no network: no plugin delegates IPAM, or only one whose range is not that of
// the pods.
var (
	errNoIPAM    = errors.New("no plugin of its chain sets ipam.type")
	errLaterIPAM = errors.New("the range of a later plugin is not that of the pods")
)

// document is a configuration file after parsing.
type document struct {
	// network lacks its plugin.
	network call.Network
	plugins []json.RawMessage
	// inlineOnly excludes the plugins in the network's own directory.
	inlineOnly bool
}

// ParseList returns the network of a .conflist with this content, without plugins from the network's
// own directory. File is empty. The error is why the daemon cannot use it.
func ParseList(data []byte) (call.Network, error) {
	d, err := parseList(data)
	if err != nil {
		return call.Network{}, err
	}
	return d.delegatingNetwork("")
}

// parseFile parses the content of a file, and reads the plugins in the network's own directory, one
// in each .conf file (CNI spec 1.1, "loadOnlyInlinedPlugins").
func parseFile(file string, data []byte) (document, error) {
	if filepath.Ext(file) != ".conflist" {
		return parseSingle(data)
	}
	d, err := parseList(data)
	if err != nil || d.inlineOnly {
		return d, err
	}
	paths, err := libcni.ConfFiles(filepath.Join(filepath.Dir(file), d.network.Name), []string{".conf"})
	if err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return d, err
	}
	for _, path := range paths {
		data, err := files.Read(path, maxFile)
		if err != nil {
			return d, fmt.Errorf("plugin %s: %w", path, err)
		}
		d.plugins = append(d.plugins, data)
	}
	return d, nil
}

// parseList parses a .conflist. libcni validates it; the plugin objects come from the text,
// because libcni's copies have rounded numbers.
func parseList(data []byte) (document, error) {
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return document{}, describe(err)
	}
	d := document{
		network:    call.Network{Name: list.Name, CNIVersion: list.CNIVersion, DisableCheck: list.DisableCheck, DisableGC: list.DisableGC},
		inlineOnly: list.LoadOnlyInlinedPlugins,
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return document{}, err
	}
	var top map[string]json.RawMessage
	err = json.Unmarshal(data, &top)
	if raw, ok := top["plugins"]; ok {
		err = json.Unmarshal(raw, &d.plugins)
	}
	return d, err
}

// parseSingle parses a .conf or .json file: one plugin object that is the whole network.
func parseSingle(data []byte) (document, error) {
	conf, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return document{}, fmt.Errorf("%w (a list of plugins needs the extension .conflist)", describe(err))
	}
	if err := utils.ValidateNetworkName(conf.Network.Name); err != nil {
		return document{}, err
	}
	return document{
		network: call.Network{Name: conf.Network.Name, CNIVersion: conf.Network.CNIVersion},
		plugins: []json.RawMessage{data},
	}, nil
}

// delegatingNetwork returns the network with the plugin that delegates IPAM: the first of the chain or, if
// pluginType is not empty, the first of that type that sets ipam.type. Without a type a later plugin is
// refused unless it calls the daemon: the first one gives pods their addresses, as aws-cni, and egress-cni
// after it has a link-local range.
func (d document) delegatingNetwork(pluginType string) (call.Network, error) {
	var first string
	for i, raw := range d.plugins {
		conf, err := libcni.NetworkPluginConfFromBytes(raw)
		if err != nil {
			return call.Network{}, fmt.Errorf("plugin %d of its chain: %w", i+1, describe(err))
		}
		p := conf.Network
		if i == 0 {
			first = p.Type
		}
		switch {
		case p.IPAM.Type == "", pluginType != "" && p.Type != pluginType:
			continue
		case pluginType == "" && i > 0 && p.IPAM.Type != ContainerPlugin:
			return call.Network{}, fmt.Errorf("%w: its first plugin, %s, sets no ipam.type, and %s does; if pods have their addresses from that, name it by --cni-network=%s/%s or --pool",
				errLaterIPAM, first, p.Type, d.network.Name, p.Type)
		}
		return d.networkOf(raw, p.IPAM.Type)
	}
	return call.Network{}, d.noIPAM(pluginType)
}

// networkOf returns the network with a plugin object that sets ipam.type.
func (d document) networkOf(raw json.RawMessage, ipamType string) (call.Network, error) {
	// Without white space, reformatting a file does not change its network.
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return call.Network{}, err
	}
	n := d.network
	n.PluginConfig, n.IPAMType = compact.Bytes(), ipamType
	if ipamType != ContainerPlugin {
		return n, nil
	}
	n.ServesContainers = true
	var err error
	n.PluginConfig, n.IPAMType, err = withDelegate(n.PluginConfig)
	return n, err
}

// noIPAM returns the error for a chain without ipam.type, or without a plugin of a type that sets it. It
// names a plugin such as multus or flannel, which passes the ipam to the plugins that it runs.
func (d document) noIPAM(pluginType string) error {
	if pluginType != "" {
		return fmt.Errorf("%w: none is of type %s with it", errNoIPAM, pluginType)
	}
	for _, raw := range d.plugins {
		var p struct{ Type string }
		var keys map[string]json.RawMessage
		if json.Unmarshal(raw, &p) != nil || json.Unmarshal(raw, &keys) != nil {
			continue
		}
		for _, key := range []string{"delegates", "delegate"} {
			if _, ok := keys[key]; ok {
				return fmt.Errorf("%w: %s runs the plugin in its key %s, and that has the ipam; write the network of that plugin to a file for the daemon (docs/install/chained.md, Plugins that run others)", errNoIPAM, p.Type, key)
			}
		}
	}
	return errNoIPAM
}

// describe replaces the Go type in the error of a value of the wrong type by the JSON type.
func describe(err error) error {
	kind, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok || kind.Field == "" {
		return err
	}
	want := "a " + kind.Type.Kind().String()
	switch kind.Type.Kind() {
	case reflect.Struct, reflect.Map:
		want = "an object"
	case reflect.Slice:
		want = "a list"
	}
	return fmt.Errorf("%s is a JSON %s; expected %s", kind.Field, kind.Value, want)
}
