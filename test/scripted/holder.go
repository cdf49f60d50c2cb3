package main

import (
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
)

// holder is who has an address. Its key is what later calls find it by; a
// plugin that is keyed by pod keeps the container ID besides.
type holder struct{ key, id string }

// holder returns whom a call is for; false if the call names nobody.
func (c conf) holder(args *skel.CmdArgs) (holder, bool) {
	switch c.IPAM.KeyedBy {
	case "id":
		return holder{key: args.ContainerID}, true
	case "pod":
		namespace, name := cniArg(args.Args, "K8S_POD_NAMESPACE"), cniArg(args.Args, "K8S_POD_NAME")
		return holder{key: namespace + "/" + name + "\n" + args.IfName, id: args.ContainerID}, name != ""
	default:
		return holder{key: args.ContainerID + "\n" + args.IfName}, true
	}
}

// text is what the file of an address holds.
func (h holder) text() string {
	if h.id == "" {
		return h.key
	}
	return h.key + "\n" + h.id
}

// has tells whether the text of an address file is of this holder, under
// whichever container ID.
func (h holder) has(text string) bool {
	return text == h.key || h.id != "" && strings.HasPrefix(text, h.key+"\n")
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
