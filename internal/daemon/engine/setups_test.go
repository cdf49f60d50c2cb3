package engine

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/ownermatch"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// setUp changes the node and the options by words, which may have a value: "ipv4 warm=4".
func setUp(n *fakeNode, o *Options, words string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range strings.Fields(words) {
		word, value, _ := strings.Cut(w, "=")
		set, ok := setups[word]
		if !ok {
			panic("unknown setup: " + w)
		}
		set(n, o, value)
	}
}

var setups = map[string]func(n *fakeNode, o *Options, value string){
	"-": func(*fakeNode, *Options, string) {},

	// Options.
	"blue": func(n *fakeNode, o *Options, _ string) { // a pool with a separate network
		n.networks["blue"] = "blue-net"
		o.Pools = []string{client.DefaultPool, "blue"}
	},
	"exclude":         func(_ *fakeNode, o *Options, v string) { o.Exclude = prefixesOf(v) },
	"max-attachments": func(_ *fakeNode, o *Options, v string) { o.MaxAttachments = numberOf(v) },
	"no-ipv6":         func(_ *fakeNode, o *Options, _ string) { o.EnableIPv6 = false },
	"other-node":      func(_ *fakeNode, o *Options, _ string) { o.Node = "other" },
	"owners":          func(_ *fakeNode, o *Options, v string) { o.Owners, _ = ownermatch.Parse([]string{v}) },
	"processes":       func(_ *fakeNode, o *Options, v string) { o.MaxProcesses = numberOf(v) },
	"queued":          func(_ *fakeNode, o *Options, v string) { o.MaxQueued = numberOf(v) },
	"rebooted":        func(_ *fakeNode, o *Options, _ string) { o.BootID = "boot2" },
	"release-delay":   func(_ *fakeNode, o *Options, v string) { o.ReleaseDelay = durationOf(v) },
	"retire":          func(_ *fakeNode, o *Options, _ string) { o.RetireOwners = true },
	"verify":          func(_ *fakeNode, o *Options, v string) { o.VerifyInterval = durationOf(v) },
	"warm":            func(_ *fakeNode, o *Options, v string) { o.WarmLeases = numberOf(v) },

	// Plugins. unknown has one family, takes no requests for addresses, and may act late; checked also notices a loss.
	"unknown": func(n *fakeNode, _ *Options, _ string) { n.profile, n.ipv6 = pluginProfile("unknown"), false },
	"checked": func(n *fakeNode, _ *Options, _ string) { n.profile, n.ipv6 = checked(), false },
	// remote has leases ahead, takes no requests for addresses and cannot be asked what it holds.
	"remote": func(n *fakeNode, _ *Options, _ string) {
		n.profile = pluginProfile("unknown")
		n.profile.Type, n.profile.Depends = "remote", profile.DependsOnNothing
	},
	"profile": func(n *fakeNode, _ *Options, v string) {
		switch v {
		case "checked":
			n.profile = checked()
		case "single-use":
			n.profile = singleUseIDs()
		case "same-answer":
			n.profile = sameAnswer()
		default:
			n.profile = pluginProfile(v)
		}
	},
	// by-code is a plugin whose CHECK was once believed by its code alone, as records of that time have it.
	"by-code": func(n *fakeNode, _ *Options, v string) {
		n.profile = pluginProfile("unknown")
		n.profile.VerifyBy, n.profile.CheckProves, n.profile.Lost = profile.VerifyCheck, profile.ProvesPresence, profile.Lost{}
		if v != "" {
			n.profile.Lost.Codes = []uint{uint(numberOf(v))}
		}
	},
	// ahead makes what the plugin returns depend on nothing of a pod.
	"ahead": func(n *fakeNode, _ *Options, _ string) { n.profile.Depends = profile.DependsOnNothing },
	"del-not-held": func(n *fakeNode, _ *Options, _ string) {
		n.profile.DelNotHeld = profile.Lost{Message: "nothing is held"}
	},
	"keyed-by":       func(n *fakeNode, _ *Options, v string) { n.profile.KeyedBy = profile.KeyedBy(v) },
	"names-pod":      func(n *fakeNode, _ *Options, _ string) { n.profile.PodIdentity = profile.PodIdentitySynthetic },
	"names-no-pod":   func(n *fakeNode, _ *Options, _ string) { n.profile.PodIdentity = profile.PodIdentityNone },
	"no-requests":    func(n *fakeNode, _ *Options, _ string) { n.profile.Requests = nil },
	"not-unique":     func(n *fakeNode, _ *Options, _ string) { n.profile.Unique = false },
	"outlives":       func(n *fakeNode, _ *Options, v string) { n.profile.AddOutlivesSeconds = numberOf(v) },
	"proves-address": func(n *fakeNode, _ *Options, _ string) { n.profile.CheckProves = profile.ProvesAddress },
	"repeated-add":   func(n *fakeNode, _ *Options, v string) { n.profile.RepeatedAdd = profile.RepeatedAdd(v) },
	"requests":       func(n *fakeNode, _ *Options, v string) { n.profile.Requests = []profile.Request{profile.Request(v)} },
	"store":          func(n *fakeNode, _ *Options, v string) { n.profile.Store = profile.Store(v) },
	"verify-by":      func(n *fakeNode, _ *Options, v string) { n.profile.VerifyBy = profile.Verify(v) },

	// The behaviour of the plugin, and of the node.
	"releasing-fails": func(n *fakeNode, _ *Options, _ string) {
		n.fault = func(step string) fault { return map[string]fault{"write releasing": writeFailed}[step] }
	},
	"bare":             func(n *fakeNode, _ *Options, _ string) { n.bare = true },
	"blue-error":       func(n *fakeNode, _ *Options, v string) { n.blueErr = errorOf(v) },
	"blue-network":     func(n *fakeNode, _ *Options, v string) { n.networks["blue"] = v },
	"call-time":        func(n *fakeNode, _ *Options, v string) { n.callTime = durationOf(v) },
	"continues":        func(n *fakeNode, _ *Options, _ string) { n.continues = true },
	"dual":             func(n *fakeNode, _ *Options, _ string) { n.ipv6 = true },
	"gated":            func(n *fakeNode, _ *Options, _ string) { n.addGate = make(chan struct{}) }, // each ADD waits for open
	"ignores-requests": func(n *fakeNode, _ *Options, _ string) { n.ignoresRequests = true },
	"ipv4":             func(n *fakeNode, _ *Options, _ string) { n.ipv6 = false },
	"last":             func(n *fakeNode, _ *Options, v string) { n.last = numberOf(v) },
	"lookup-error":     func(n *fakeNode, _ *Options, v string) { n.lookupErr = errorOf(v) },
	"needs-pod":        func(n *fakeNode, _ *Options, v string) { n.needsPod = v != "false" },
	"network":          func(n *fakeNode, _ *Options, v string) { n.networks[client.DefaultPool] = v },
	"network-error":    func(n *fakeNode, _ *Options, v string) { n.networkErr = errorOf(v) },
	"outside":          func(n *fakeNode, _ *Options, v string) { n.outside = prefixesOf(v) },
	"plugin-error":     func(n *fakeNode, _ *Options, v string) { n.pluginErr = errorOf(v) },
	"config-error":     func(n *fakeNode, _ *Options, v string) { n.configErr = errorOf(v) },
	"client-left":      func(_ *fakeNode, o *Options, _ string) { o.Left = func(context.Context) bool { return true } },
	"disk-error":       func(n *fakeNode, _ *Options, v string) { n.availableErr = errorOf(v) },
	"readable":         func(n *fakeNode, _ *Options, _ string) { n.storeHidden = false },
	"two-sets":         func(n *fakeNode, _ *Options, _ string) { n.twoSets = true },
	"unreadable":       func(n *fakeNode, _ *Options, _ string) { n.storeHidden = true },
	"served":           func(n *fakeNode, _ *Options, _ string) { n.bare = false },
	"size":             func(n *fakeNode, _ *Options, v string) { n.rangeSize = numberOf(v) },
	"strict-del":       func(n *fakeNode, _ *Options, _ string) { n.strictDel = true },
	"version":          func(n *fakeNode, _ *Options, v string) { n.cniVersion = v },
	// slow makes the ADDs of an owner, or in a pool, end later: "blue/30s".
	"slow": func(n *fakeNode, _ *Options, v string) {
		of, by, _ := strings.Cut(v, "/")
		n.afterAdd = func(c call.Call) {
			if c.Owner == of || c.Pool == of {
				time.Sleep(durationOf(by))
			}
		}
	},
	// replaces-id is whereabouts, whose ADD replaces the container ID of the pod.
	"replaces-id": func(n *fakeNode, _ *Options, _ string) {
		n.onCall = func(_ context.Context, verb string, c call.Call) {
			for id, ips := range n.store {
				if verb == "ADD" {
					delete(n.store, id)
					n.store[c.ContainerID] = ips
				}
			}
		}
	},
}

// errorOf returns an error whose text has dashes for spaces; nil without a text.
func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(strings.ReplaceAll(text, "-", " "))
}

// prefixesOf returns prefixes that commas separate. An address is one, too.
func prefixesOf(list string) []netip.Prefix {
	var all []netip.Prefix
	for text := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			p = netip.PrefixFrom(addr(text), addr(text).BitLen())
		}
		all = append(all, p)
	}
	return all
}

func durationOf(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func numberOf(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}
