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

// errNoIPAM: the file is valid, but does not delegate IPAM.
var errNoIPAM = errors.New("no plugin of its chain sets ipam.type")

// document is a configuration file after parsing.
type document struct {
	// network lacks its plugin.
	network call.Network
	plugins []json.RawMessage
	// inlineOnly excludes the plugins in the network's own directory.
	inlineOnly bool
}

// ParseList returns the network of a .conflist with this content, without plugins from the network's
// own directory. File is empty. The error is why the sidecar cannot use it.
func ParseList(data []byte) (call.Network, error) {
	d, err := parseList(data)
	if err != nil {
		return call.Network{}, err
	}
	return d.delegatingNetwork()
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

// delegatingNetwork returns the network with the first plugin that delegates IPAM.
func (d document) delegatingNetwork() (call.Network, error) {
	for i, raw := range d.plugins {
		conf, err := libcni.NetworkPluginConfFromBytes(raw)
		if err != nil {
			return call.Network{}, fmt.Errorf("plugin %d of its chain: %w", i+1, describe(err))
		}
		if conf.Network.IPAM.Type == "" {
			continue
		}
		// Without white space, reformatting a file does not change its network.
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return call.Network{}, err
		}
		n := d.network
		n.PluginConfig, n.IPAMType = compact.Bytes(), conf.Network.IPAM.Type
		if n.IPAMType == ContainerPlugin {
			n.ServesContainers = true
			n.PluginConfig, n.IPAMType, err = withDelegate(n.PluginConfig)
		}
		return n, err
	}
	return call.Network{}, errNoIPAM
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
