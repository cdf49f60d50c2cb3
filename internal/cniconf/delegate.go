package cniconf

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ContainerPlugin is the type of the IPAM plugin by which container runtimes call the daemon. Its
// configuration has that of the plugin that the daemon runs, as ipam.delegate (docs/install/pods.md, Configuration).
const ContainerPlugin = "delegated-ipam-cni"

// withDelegate returns a plugin object with the delegate of its ipam in place of it, and the delegate's
// type. The rest is as if the runtime called that plugin.
func withDelegate(object []byte) (changed []byte, pluginType string, err error) {
	var plugin, ipam map[string]json.RawMessage
	if err := json.Unmarshal(object, &plugin); err != nil {
		return nil, "", err
	}
	if err := json.Unmarshal(plugin["ipam"], &ipam); err != nil {
		return nil, "", err
	}
	inner, ok := ipam["delegate"]
	if !ok {
		return nil, "", fmt.Errorf("ipam.type is %s, and ipam.delegate is missing; expected the ipam object of the plugin to run, such as {\"type\": \"host-local\", ...}", ContainerPlugin)
	}
	if pluginType, err = delegateType(inner); err != nil {
		return nil, "", fmt.Errorf("ipam.delegate: %w", err)
	}
	plugin["ipam"] = inner
	changed, err = json.Marshal(plugin)
	return changed, pluginType, err
}

// delegate is an ipam object, as far as it matters here.
type delegate struct {
	Type     string          `json:"type"`
	Delegate json.RawMessage `json:"delegate"`
}

// delegateType returns the type of a delegate. It returns an error if that, or a delegate in it, is
// ContainerPlugin, which would call the daemon again.
func delegateType(raw json.RawMessage) (string, error) {
	var outer delegate
	if err := json.Unmarshal(raw, &outer); err != nil {
		return "", describe(err)
	}
	if outer.Type == "" {
		return "", errors.New("type is missing; expected that of the plugin to run")
	}
	for d := outer; ; {
		if d.Type == ContainerPlugin {
			return "", fmt.Errorf("type is %s, which calls the daemon; expected that of the plugin to run", ContainerPlugin)
		}
		inner := d.Delegate
		d = delegate{}
		if json.Unmarshal(inner, &d) != nil { // none, or the plugin's own key
			return outer.Type, nil
		}
	}
}
