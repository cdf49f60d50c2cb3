package cli

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// takes lets a command have exactly these arguments, called as in its help; "IP"
// must be an address and "OWNER" a name.
func takes(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		want := strings.Join(names, " ")
		switch {
		case len(names) == 0 && len(args) > 0:
			return option.WrongUsage("got %q; expected no argument", args)
		case len(args) < len(names):
			return option.WrongUsage("%s is missing; expected %s", names[len(args)], want)
		case len(args) > len(names):
			return option.WrongUsage("got %d arguments %q; expected %s", len(args), args, want)
		}
		for i, name := range names {
			if err := checkArgument(name, args[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func checkArgument(name, text string) error {
	switch name {
	case "IP":
		if ip, err := netip.ParseAddr(text); err != nil || ip.Zone() != "" {
			return option.WrongUsage("IP is %q; expected an address without a prefix length and a zone, such as 10.15.0.2 or fd00:15::2", text)
		}
	case "OWNER":
		// The API takes an empty owner, but drops such an attachment as soon as
		// its client is gone: nothing for a command line.
		if text == "" {
			return option.WrongUsage("OWNER is %q; expected a name such as router or kube-system/coredns-1", text)
		}
	}
	return nil
}

// poolName is the pool that a name stands for.
func poolName(name string) string {
	if name == "" {
		return attachment.DefaultPool
	}
	return name
}

// notAnAddress is what 400 means to who asks for an address.
func notAnAddress(ip string) string {
	return fmt.Sprintf("the sidecar does not take %q for an address", ip)
}

// familyOff is what 501 means to who asks for an address.
func familyOff(ip string) string {
	return fmt.Sprintf("the address family of %s is switched off in the sidecar (serve --enable-ipv4, --enable-ipv6)", ip)
}

// callerRefused is what 403 means to who asks for no owner.
const callerRefused = "not admitted: --allow-uids and --allow-gids of the sidecar do not let this user call"
