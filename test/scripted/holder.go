package main

import (
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
)

// holder is the holder of an address. Later calls find it by its key; note is other data in the
// store.
type holder struct{ key, note string }

// holder returns the holder of a call; false if the call lacks the necessary arguments.
func (c conf) holder(args *skel.CmdArgs) (holder, bool) {
	pod := podOf(args.Args)
	switch c.IPAM.KeyedBy {
	case "id":
		return holder{key: args.ContainerID, note: args.IfName}, true
	case "network":
		return holder{key: c.Name + "." + args.ContainerID, note: pod}, true
	case "pod":
		return holder{key: pod + "\n" + args.IfName, note: args.ContainerID}, pod != ""
	default:
		return holder{key: args.ContainerID + "\n" + args.IfName}, true
	}
}

// podOf returns the pod in CNI_ARGS as namespace/name; empty if there is none.
func podOf(cniArgs string) string {
	if name := cniArg(cniArgs, "K8S_POD_NAME"); name != "" {
		return cniArg(cniArgs, "K8S_POD_NAMESPACE") + "/" + name
	}
	return ""
}

// text returns the content of the file of an address.
func (h holder) text() string {
	if h.note == "" {
		return h.key
	}
	return h.key + "\n" + h.note
}

// matches reports whether the text of an address file has the key of this holder.
func (h holder) matches(text string) bool {
	return text == h.key || strings.HasPrefix(text, h.key+"\n")
}

// cniArg returns the value of a key in CNI_ARGS, empty if it is missing.
func cniArg(cniArgs, key string) string {
	for pair := range strings.SplitSeq(cniArgs, ";") {
		if value, ok := strings.CutPrefix(pair, key+"="); ok {
			return value
		}
	}
	return ""
}
