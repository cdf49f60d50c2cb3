package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// args accepts exactly these arguments, named as in the help text; "IP" must be an address, "OWNER"
// a name, and "TYPE" a plugin type.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cmdline.Args(names...)(cmd, args); err != nil {
			return err
		}
		for i, name := range names {
			if err := checkArg(name, args[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func checkArg(name, text string) error {
	switch name {
	case "IP":
		if ip, err := netip.ParseAddr(text); err != nil || ip.Zone() != "" {
			return cmdline.Usagef("IP is %q; expected an address without a prefix length and a zone, such as 10.15.0.2 or fd00:15::2", text)
		}
	case "TYPE":
		if err := profile.CheckType(text); err != nil {
			return cmdline.Usagef("TYPE is %q; %w", text, err)
		}
	case "OWNER":
		// The API accepts an empty owner, but releases its addresses as soon as the client has
		// disconnected, which a command does immediately.
		if text == "" {
			return cmdline.Usagef("OWNER is %q; expected a name such as router or kube-system/coredns-1", text)
		}
	}
	return nil
}

// poolOption declares --pool for a command that works on one pool.
func poolOption(target *string, help string) options.Option {
	return options.Option{Name: "pool", Value: options.Text(target, "name"), DefaultText: client.DefaultPool, Help: help}
}

// listedPool returns the pool that a value of --pool names, as the list has it. A pool that the
// sidecar does not have, and no attachment, is an error.
func (c connection) listedPool(ctx context.Context, name string, all []*models.Attachment) (string, error) {
	if slices.ContainsFunc(all, func(a *models.Attachment) bool { return a.Pool == poolName(name) }) {
		return poolName(name), nil
	}
	status, err := c.health(ctx)
	if err != nil {
		return "", err
	}
	pool, known := poolInStatus(status, name), poolNames(status)
	if !slices.Contains(known, pool) {
		return "", fmt.Errorf("no pool %q: the sidecar has the pools %q, and no attachment is in another one", name, known)
	}
	return pool, nil
}

// poolInStatus returns the pool that a value of --pool names, as this status has it.
func poolInStatus(status *models.StatusResponse, name string) string {
	if poolName(name) == client.DefaultPool {
		for _, o := range status.DelegatedIpam.Options {
			if o.Name == "ipam-default-ip-pool" {
				return o.Value
			}
		}
	}
	return poolName(name)
}

// poolNames returns the pools of the sidecar.
func poolNames(status *models.StatusResponse) []string {
	names := make([]string, len(status.DelegatedIpam.Pools))
	for i, p := range status.DelegatedIpam.Pools {
		names[i] = p.Pool
	}
	return names
}

// poolName returns the pool that a request with a value of --pool has.
func poolName(name string) string { return cmp.Or(name, client.DefaultPool) }
