package main

import (
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
)

// holder is who has an address. Its key is what later calls find it by; note is
// what the plugin keeps besides.
type holder struct{ key, note string }

// holder returns whom a call is for; false if the call does not say enough.
func (c conf) holder(args *skel.CmdArgs) (holder, bool) {
	pod := podOf(args.Args)
	switch c.IPAM.KeyedBy {
	case "id":
		return holder{key: args.ContainerID, note: pod}, true
	case "network":
		return holder{key: c.Name + "." + args.ContainerID, note: pod}, true
	case "pod":
		return holder{key: pod + "\n" + args.IfName, note: args.ContainerID}, pod != ""
	default:
		return holder{key: args.ContainerID + "\n" + args.IfName}, true
	}
}

// podOf returns the pod that CNI_ARGS names, as namespace/name; empty for none.
func podOf(cniArgs string) string {
	if name := cniArg(cniArgs, "K8S_POD_NAME"); name != "" {
		return cniArg(cniArgs, "K8S_POD_NAMESPACE") + "/" + name
	}
	return ""
}

// text is what the file of an address holds.
func (h holder) text() string {
	if h.note == "" {
		return h.key
	}
	return h.key + "\n" + h.note
}

// has tells whether the text of an address file is of this holder, whatever is
// noted there.
func (h holder) has(text string) bool {
	return text == h.key || strings.HasPrefix(text, h.key+"\n")
}

// cniArg returns the value of one key of CNI_ARGS, empty if it is not there.
func cniArg(cniArgs, key string) string {
	for pair := range strings.SplitSeq(cniArgs, ";") {
		if value, ok := strings.CutPrefix(pair, key+"="); ok {
			return value
		}
	}
	return ""
}
