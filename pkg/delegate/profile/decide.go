package profile

import (
	"encoding/json"
	"regexp"
	"time"
)

// This file holds what follows from the facts where more than one part of the
// program, or more than one fact, is concerned, so that each fact is read in
// one place. The others are read where they are used (docs/plugins.md, What a
// profile says).

// DelBeforeAdd reports whether a first ADD needs a DEL before it, because its ID may hold
// something of which the journal does not know.
func (p Profile) DelBeforeAdd() bool {
	return p.RepeatedAdd != RepeatedAddSameAnswer && !p.SingleUseIDs()
}

// SingleUseIDs reports whether each ADD needs a container ID that was never used before: a
// DEL may act at any later time, and release what a new ADD got.
func (p Profile) SingleUseIDs() bool { return p.Del == DelQueued }

// OnNode reports whether the plugin's store is on the node: a reboot may lose its last
// writes, and ends every process that could still change it.
func (p Profile) OnNode() bool { return p.Store == StoreNode }

// AddActsUntil is the last moment at which an ADD whose outcome is unknown, and whose
// process had ended at a given time, may still allocate.
func (p Profile) AddActsUntil(ended time.Time) time.Time {
	return ended.Add(time.Duration(p.AddOutlivesSeconds) * time.Second)
}

// DelActsUntil is the last moment at which a DEL whose outcome is unknown, and whose
// process had ended at a given time, may still release.
func (p Profile) DelActsUntil(ended time.Time) time.Time {
	return ended.Add(time.Duration(p.DelOutlivesSeconds) * time.Second)
}

// StateDir is the folder in which the plugin keeps its state, by the ipam object of
// a network, and the key that names it; empty if there is none.
func (p Profile) StateDir(ipam []byte) (dir, key string) {
	if p.StateDirKey == "" {
		return "", ""
	}
	var object map[string]json.RawMessage
	// What cannot be read is the plugin's to refuse.
	if json.Unmarshal(ipam, &object) != nil || json.Unmarshal(object[p.StateDirKey], &dir) != nil || dir == "" {
		dir = p.DefaultStateDir
	}
	return dir, p.StateDirKey
}

// Pod is a pod's name as CNI_ARGS tells it (K8S_POD_NAMESPACE, K8S_POD_NAME).
type Pod struct{ Namespace, Name string }

// syntheticNamespace is the namespace of pods that are none.
const syntheticNamespace = "delegated-ipam"

// podName is a pod's namespace and name as Kubernetes writes them (RFC 1123).
var podName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]*[a-z0-9])?)/([a-z0-9]([a-z0-9.-]*[a-z0-9])?)$`)

// Pod returns the pod that the plugin is told of for an owner; false for none. A
// synthetic one is unique to the container ID: two attachments with one pod name
// would be the same address to a plugin that is keyed by pod (docs/plugins.md, What
// to configure).
func (p Profile) Pod(owner, containerID string) (Pod, bool) {
	synthetic := Pod{Namespace: syntheticNamespace, Name: containerID}
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
