package plugin

import (
	"encoding/json"
	"fmt"
)

// setRequestedIPs returns args with its cni.ips set to those of request, and the rest unchanged.
func setRequestedIPs(args, request json.RawMessage) (json.RawMessage, error) {
	outer, cni, err := splitArgs(args)
	if err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(request, &object); err != nil {
		return nil, err
	}
	cni["ips"] = object["ips"]
	if outer["cni"], err = json.Marshal(cni); err != nil {
		return nil, err
	}
	return json.Marshal(outer)
}

// removeRequestedIPs removes args.cni.ips from a plugin object: every attachment would request the
// address that a configuration requests.
func removeRequestedIPs(object pluginObject) error {
	raw, ok := object["args"]
	if !ok {
		return nil
	}
	outer, cni, err := splitArgs(raw)
	if err != nil {
		return err
	}
	if _, ok := cni["ips"]; !ok {
		return nil
	}
	delete(cni, "ips")
	if outer["cni"], err = json.Marshal(cni); err != nil {
		return err
	}
	object["args"], err = json.Marshal(outer)
	return err
}

// splitArgs parses args and args.cni; both are empty objects if absent.
func splitArgs(raw json.RawMessage) (outer, cni map[string]json.RawMessage, err error) {
	if raw != nil {
		if err := json.Unmarshal(raw, &outer); err != nil {
			return nil, nil, fmt.Errorf("args: %w; expected an object", err)
		}
	}
	if outer == nil {
		outer = map[string]json.RawMessage{}
	}
	if raw, ok := outer["cni"]; ok {
		if err := json.Unmarshal(raw, &cni); err != nil {
			return nil, nil, fmt.Errorf("args.cni: %w; expected an object", err)
		}
	}
	if cni == nil {
		cni = map[string]json.RawMessage{}
	}
	return outer, cni, nil
}
