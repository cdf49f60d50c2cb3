package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
)

// Exit codes of `holder`, those of `delegated-ipam-bridge holder`.
const (
	exitConflict = 3
	exitNotHeld  = 4
)

// holders are the attachments and leases of one address, as `holder -o json` prints them.
type holders struct {
	Address     string               `json:"address"`
	State       string               `json:"state"` // held, not-held or conflict
	Attachments []*models.Attachment `json:"attachments"`
	Leases      []heldLease          `json:"leases"`
	// Unknown is why the leases of a network are not known.
	Unknown []string `json:"unknown,omitempty"`
}

// heldLease is a lease in the store of host-local, also of another client.
type heldLease struct {
	Network     string    `json:"network"`
	ContainerID string    `json:"container-id"`
	Interface   string    `json:"interface"`
	File        string    `json:"file"`
	Written     time.Time `json:"written"`
	// Own reports that the daemon has made it.
	Own bool `json:"own"`
}

func (d dependencies) holderCommand() *cobra.Command {
	var f clientFlags
	var serve serveOptions
	cmd := &cobra.Command{
		Use:   "holder IP",
		Short: "Show who has an address",
		Long: `Show who has an address: the attachment with its owner, pod, state and age, and the lease
in the store of host-local, also one that the plugin has made for another client, such as a
container runtime. Of other plugins only the attachments are known.

The store is read with the options of the running daemon; without one with those that serve
would have, as by doctor. Run it where the daemon runs, with its mounts.

Exit status: 0 held; 1 failed, holder unknown; 2 wrong usage; 3 conflict: the attachment and
the lease differ; 4 not held.`,
		Example: `  delegated-ipam holder 10.15.0.2`,
		Args:    args("IP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.holder(cmd, f, serve, netip.MustParseAddr(args[0]).Unmap())
		},
		ValidArgsFunction: d.completeQueried(func(ctx context.Context, c connection, _ *cobra.Command, args []string) ([]string, error) {
			if len(args) > 0 {
				return nil, nil
			}
			all, err := c.list(ctx)
			return allocatedAddresses(all), err
		}),
	}
	serve = d.serveOptions(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	f.register(cmd, d.env)
	return cmd
}

func (d dependencies) holder(cmd *cobra.Command, f clientFlags, serve serveOptions, ip netip.Addr) error {
	own := resolveForDoctor(serve)
	f.useSocket(cmd, own)
	found := holders{Address: ip.String(), Attachments: []*models.Attachment{}, Leases: []heldLease{}}
	c, err := d.connect(f.host)
	var all []*models.Attachment
	var running *models.DelegatedIPAMStatus
	if err == nil {
		all, err = c.list(cmd.Context())
		if status, statusErr := c.health(cmd.Context()); statusErr == nil {
			running = status.DelegatedIpam
		}
	}
	has := listOptions{addresses: []netip.Prefix{netip.PrefixFrom(ip, ip.BitLen())}}
	for _, a := range all {
		if has.matches(a) {
			found.Attachments = append(found.Attachments, a)
		}
	}
	if config, compared := own.compare(running); config != nil {
		found.addLeases(*config, ip)
	} else {
		found.Unknown = append(found.Unknown, compared.Invalid.Error())
	}
	if err != nil && len(found.Leases) == 0 {
		return fmt.Errorf("holder: %w", err)
	}
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "holder: the attachments are not known: %s\n", err)
	}
	found.judge()
	err = output.Print(cmd.OutOrStdout(), f.output, found, func(t output.Table) { found.print(t, d.now()) })
	switch {
	case err != nil:
		return err
	case found.State == stateConflict:
		return &cmdline.ExitError{Code: exitConflict, Err: fmt.Errorf("holder: %s is in conflict", ip)}
	case found.State == stateNotHeld:
		return &cmdline.ExitError{Code: exitNotHeld, Err: fmt.Errorf("holder: %s is not held", ip)}
	}
	return nil
}

const (
	stateHeld     = "held"
	stateNotHeld  = "not-held"
	stateConflict = "conflict"
)

// addLeases reads the stores of the networks of all pools.
func (h *holders) addLeases(config daemon.Config, ip netip.Addr) {
	runner, err := plugin.New(config.PluginOptions())
	conf, confErr := cniconf.New(config.NetworkOptions())
	if err = errors.Join(err, confErr); err != nil {
		h.Unknown = append(h.Unknown, err.Error())
		return
	}
	var seen []string
	for _, pool := range conf.Pools() {
		n, err := conf.Network(pool)
		if err != nil {
			h.Unknown = append(h.Unknown, fmt.Sprintf("pool %q: %s", pool, err))
			continue
		}
		if slices.Contains(seen, n.Name) {
			continue
		}
		seen = append(seen, n.Name)
		l, err := runner.Lease(n, ip)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			h.Unknown = append(h.Unknown, err.Error())
		default:
			h.Leases = append(h.Leases, heldLease{n.Name, l.ContainerID, l.Interface, l.File, l.Written, h.hasOwner(n.Name, l.ContainerID) || containerid.Match(l.ContainerID)})
		}
	}
}

// hasOwner reports whether an attachment has a container ID in a network.
func (h *holders) hasOwner(network, containerID string) bool {
	return slices.ContainsFunc(h.Attachments, func(a *models.Attachment) bool { return a.Network == network && a.ContainerID == containerID })
}

// judge sets the state. An attachment is in conflict with a lease of its network for another container ID.
func (h *holders) judge() {
	h.State = stateNotHeld
	if len(h.Attachments)+len(h.Leases) > 0 {
		h.State = stateHeld
	}
	for _, l := range h.Leases {
		if slices.ContainsFunc(h.Attachments, func(a *models.Attachment) bool { return a.Network == l.Network && a.ContainerID != l.ContainerID }) {
			h.State = stateConflict
		}
	}
}

func (h *holders) print(t output.Table, now time.Time) {
	t.Row("Address:", h.Address)
	t.Row("State:", h.State)
	for _, a := range h.Attachments {
		t.Row("Owner:", a.Owner)
		t.Optional("  Pod:", a.Pod)
		t.Row("  Pool:", a.Pool)
		t.Row("  State:", fmt.Sprintf("%s, for %s", a.State, output.Duration(now.Sub(time.Time(a.Changed)))))
		t.Row("  Addresses:", strings.Join(ips(a), ", "))
		t.Row("  Container ID:", a.ContainerID)
		a.Pod = ""
		t.Optional("  Note:", note(a, now))
	}
	for _, l := range h.Leases {
		of := "of another client of the plugin than delegated-ipam"
		switch {
		case h.hasOwner(l.Network, l.ContainerID):
			of = "of the owner above"
		case l.Own:
			of = "of delegated-ipam, without an attachment (see doctor)"
		}
		t.Row("Lease:", of)
		t.Row("  Container ID:", l.ContainerID)
		t.Row("  Interface:", l.Interface)
		t.Row("  Written:", output.Ago(l.Written, now))
		t.Row("  File:", l.File)
	}
	for _, why := range h.Unknown {
		t.Row("Leases unknown:", why)
	}
}
