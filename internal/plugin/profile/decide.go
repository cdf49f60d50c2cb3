package profile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file has the conclusions from a profile that more than one part of the program needs, or
// that follow from more than one field, so that each field is read in one place. The other fields
// are read where they are used (docs/reference/profiles.md, Profile fields).

// DelBeforeAdd reports whether a first ADD needs a DEL before it, because its container ID may hold
// addresses that the journal does not know.
func (p Profile) DelBeforeAdd() bool {
	return p.SecondAdd() != RepeatedAddSameAnswer && !p.SingleUseIDs()
}

// SecondAdd returns the effect of a second ADD of an ID.
func (p Profile) SecondAdd() RepeatedAdd { return p.RepeatedAdd }

// SingleUseIDs reports whether each ADD needs a container ID that was never used before: a DEL may
// act at any later time, and release what a new ADD allocated.
func (p Profile) SingleUseIDs() bool { return p.Del == DelQueued }

// OnNode reports whether the plugin's store is on the node: a reboot may lose its last writes, and
// ends every process that could still change it. Each node needs a separate range, because the
// plugin would allocate from a common one as if there were no other node.
func (p Profile) OnNode() bool { return p.Store == StoreNode }

// CheckReclaim returns why a DEL on this node does not release what the daemon of another node
// allocated, by the ipam object of the network.
func (p Profile) CheckReclaim(ipam []byte) error {
	_, perNode := lookUp(ipam, p.PerNodeKey)
	switch {
	case perNode != nil:
		return fmt.Errorf("plugin %s has a separate pool for each node with ipam.%s, and a DEL on another node reports success without releasing anything", p.Type, p.PerNodeKey)
	case p.OnNode():
		return fmt.Errorf("plugin %s keeps its allocations on the node: those of a lost node are lost with it", p.Type)
	case p.SingleUseIDs():
		return fmt.Errorf("plugin %s has a container ID with random digits for each ADD, which only the journal of the lost node had; expected a plugin whose container IDs can be computed", p.Type)
	case !p.DelFromAnyNode:
		return fmt.Errorf("plugin %s is not known to release on one node what another one allocated; expected delFromAnyNode in its profile. If it does, set that in a file for --plugin-profile (docs/reference/profiles.md)", p.Type)
	}
	return nil
}

// ActsUntil returns the last moment at which an ADD or DEL with an unknown outcome, whose process
// ended at the given time, may still allocate or release.
func (p Profile) ActsUntil(ended time.Time) time.Time {
	return ended.Add(time.Duration(p.AddOutlivesSeconds) * time.Second)
}

// StateDir returns the directory of the plugin's state by the ipam object of a network, and the key
// that names it, as it is written there; both are empty if the plugin keeps no state in files.
func (p Profile) StateDir(ipam []byte) (dir, key string) {
	key, value := lookUp(ipam, p.StateDirKey)
	return cmp.Or(text(value), p.DefaultStateDir), key
}

// lookUp returns the value at a key of an ipam object, and the key as it is written there: plugins in Go find it in any
// case of its letters. The value is nil if there is none. An object that cannot be parsed is for the plugin to refuse.
func lookUp(ipam []byte, key string) (written string, value json.RawMessage) {
	var object map[string]json.RawMessage
	_ = json.Unmarshal(ipam, &object)
	for name, v := range object {
		if strings.EqualFold(name, key) && name > written {
			written, value = name, v
		}
	}
	return cmp.Or(written, key), value
}

// text returns the text that a value is; empty for another one.
func text(value json.RawMessage) (s string) {
	_ = json.Unmarshal(value, &s)
	return s
}

// Required returns the required files by the ipam object of a network: a path that a key of ipam
// names comes first.
func (p Profile) Required(ipam []byte) []Requirement {
	all := slices.Clone(p.Requires)
	for i, r := range all {
		if _, value := lookUp(ipam, r.Key); text(value) != "" {
			all[i].Paths = append([]string{text(value)}, r.Paths...)
		}
	}
	return all
}

// CheckNetworkName returns why the plugin does not work with a network of this name and plugin object.
func (p Profile) CheckNetworkName(name string, object map[string]json.RawMessage) error {
	for _, setting := range p.NetworkNameUnless {
		key, value, _ := strings.Cut(setting, "=")
		var got string
		if json.Unmarshal(object[key], &got) == nil && got == value {
			return nil
		}
	}
	if p.NetworkName == NetworkNameLabel && !dnsLabel.MatchString(name) {
		return fmt.Errorf("plugin %s makes names of Kubernetes objects of the network's name %q; expected a DNS label: at most 63 lower-case letters, digits and \"-\"", p.Type, name)
	}
	return nil
}

// CheckTimeout returns why the plugin must not be run with this time limit: a DEL that is not
// terminated in time would report success without having released.
func (p Profile) CheckTimeout(limit time.Duration) error {
	gives := time.Duration(p.DelGivesUpSeconds) * time.Second
	if gives > 0 && limit >= gives {
		return fmt.Errorf("--plugin-timeout is %s, but a DEL of plugin %s reports success after %s without having released the address if its backend does not respond; expected less than %s", limit, p.Type, gives, gives)
	}
	return nil
}

// HasStatus reports whether a STATUS that succeeds means anything.
func (p Profile) HasStatus() bool { return p.StatusProves != StatusNothing }

// Danger returns the dangers as one text; empty for a safe plugin.
func (p Profile) Danger() string {
	if len(p.Dangers) < 2 {
		return strings.Join(p.Dangers, "")
	}
	numbered := make([]string, len(p.Dangers))
	for i, d := range p.Dangers {
		numbered[i] = fmt.Sprintf("(%d) %s", i+1, d)
	}
	return strings.Join(numbered, "; ")
}

// Pod is a pod as CNI_ARGS names it (K8S_POD_NAMESPACE, K8S_POD_NAME).
type Pod struct{ Namespace, Name string }

// dnsLabel matches a DNS label (RFC 1123).
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// podName matches an owner that is a pod's namespace and name (RFC 1123).
var podName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]*[a-z0-9])?)/([a-z0-9]([a-z0-9.-]*[a-z0-9])?)$`)

// Pod returns the pod that CNI_ARGS names for an owner; false for none. A synthetic one is unique to
// the container ID: two attachments with one pod name would have the same address in a plugin that
// is keyed by pod (docs/reference/plugins.md, What to configure).
func (p Profile) Pod(owner, containerID string) (Pod, bool) {
	synthetic := Pod{Namespace: "delegated-ipam", Name: containerID}
	switch p.PodIdentity {
	case PodIdentitySynthetic:
		return synthetic, true
	case PodIdentityGiven:
		if m := podName.FindStringSubmatch(owner); m != nil {
			return Pod{Namespace: m[1], Name: m[3]}, true
		}
		return synthetic, true
	default:
		return Pod{}, false
	}
}

// NotSeparate returns which attachments of a container runtime the plugin does not tell apart; empty for none,
// or if that is not known.
func (p Profile) NotSeparate() string {
	return map[KeyedBy]string{
		KeyedByContainer: "interfaces of one container",
		KeyedByPod:       "containers of one pod",
		KeyedByNothing:   "any attachments of one configuration",
	}[p.Key()]
}

// Key returns by what the plugin tells attachments apart.
func (p Profile) Key() KeyedBy { return p.KeyedBy }

// DependsOnPod reports whether the result of an ADD may depend on the pod, so that a lease that was acquired without it
// cannot be handed to it.
func (p Profile) DependsOnPod() bool { return p.Depends != DependsOnNothing }

// LikeHostLocal reports whether the plugin has the store and the ranges of host-local.
func (p Profile) LikeHostLocal() bool { return p.Lookup == LookupHostLocal }
