package delegate

import (
	"encoding/json"
	"fmt"
)

// withRequest returns args with its cni.ips set, and all else kept.
func withRequest(args, ips json.RawMessage) (json.RawMessage, error) {
	outer, cni, err := splitArgs(args)
	if err != nil {
		return nil, err
	}
	var request map[string]json.RawMessage
	if err := json.Unmarshal(ips, &request); err != nil {
		return nil, err
	}
	cni["ips"] = request["ips"]
	if outer["cni"], err = json.Marshal(cni); err != nil {
		return nil, err
	}
	return json.Marshal(outer)
}

// removeRequest takes args.cni.ips out of a plugin object: an address that the
// configuration asks for would be asked for by every attachment.
func removeRequest(object pluginObject) error {
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
