package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/unreachable"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// clientFlags are the flags of every command that queries a daemon.
type clientFlags struct {
	host   string
	output string
	// formats are the values of --output besides table and json.
	formats []string
}

// register adds these flags and the flags of the command.
func (f *clientFlags) register(cmd *cobra.Command, env map[string]string, more ...options.Option) {
	options.Register(cmd.Flags(), options.Host(&f.host, env), options.Output(&f.output, f.formats...))
	options.Register(cmd.Flags(), more...)
}

// printOutcome prints v as JSON, or the lines.
func (f clientFlags) printOutcome(w io.Writer, v any, lines ...string) error {
	return output.Print(w, f.output, v, func(t output.Table) {
		for _, line := range lines {
			t.Line(line)
		}
	})
}

// connection is a client of one daemon with the time limit of a request.
type connection struct {
	*client.Client
	limit time.Duration
}

// connect sends nothing before the first request.
func (d dependencies) connect(host string) (connection, error) {
	api, err := client.New(host, client.WithTimeout(d.requestLimit))
	return connection{api, d.requestLimit}, err
}

// connected makes a command query the daemon of its flags, and adds these flags and more.
func (d dependencies) connected(
	cmd *cobra.Command, f *clientFlags, run func(*cobra.Command, connection, []string) error, more ...options.Option,
) *cobra.Command {
	f.register(cmd, d.env, more...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := d.connect(f.host)
		if err != nil {
			return err
		}
		return run(cmd, c, args)
	}
	return cmd
}

// list returns all attachments.
func (c connection) list(ctx context.Context) ([]*models.Attachment, error) {
	all, err := c.List(ctx)
	if errors.Is(err, client.ErrNotDaemon) {
		return nil, fmt.Errorf("%s is not a socket of delegated-ipam: it does not list attachments (that of cilium-agent does not)", c.Socket())
	}
	return all, c.explain(ctx, err)
}

// health returns the status; one without the part "delegated-ipam" is an error.
func (c connection) health(ctx context.Context) (*models.StatusResponse, error) {
	status, err := c.Status(ctx)
	if errors.Is(err, client.ErrNotDaemon) {
		return nil, fmt.Errorf("%s is not a socket of delegated-ipam: its status has no part \"delegated-ipam\" (that of cilium-agent has none)", c.Socket())
	}
	return status, c.explain(ctx, err)
}

// explain returns the error of a request with its remedy.
func (c connection) explain(ctx context.Context, err error) error {
	var refused *client.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		if refused.RetryAfter > 0 {
			return fmt.Errorf("%w (try again in %s)", err, refused.RetryAfter)
		}
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrupted; the daemon completes a request in progress, and `delegated-ipam list` shows the result")
	}
	return unreachable.Explain(c.Socket(), c.limit, err)
}

// poolOption declares --pool for a command that works on one pool.
func poolOption(target *string, help string) options.Option {
	return options.Option{Name: "pool", Value: options.Text(target, "name"), DefaultText: client.DefaultPool, Help: help}
}

// listPool returns the attachments of the pool that a value of --pool names, of all pools for an
// empty one. A pool that the daemon does not have, and no attachment, is an error.
func (c connection) listPool(ctx context.Context, pool string) ([]*models.Attachment, error) {
	all, err := c.list(ctx)
	if err != nil || pool == "" {
		return all, err
	}
	if !slices.ContainsFunc(all, func(a *models.Attachment) bool { return a.Pool == pool }) {
		status, err := c.health(ctx)
		if err != nil {
			return nil, err
		}
		name, known := pool, poolNames(status)
		if pool = poolInStatus(status, name); !slices.Contains(known, pool) {
			return nil, fmt.Errorf("no pool %q: the daemon has the pools %q, and no attachment is in another one", name, known)
		}
	}
	return slices.DeleteFunc(all, func(a *models.Attachment) bool { return a.Pool != pool }), nil
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

// poolNames returns the pools of the daemon.
func poolNames(status *models.StatusResponse) []string {
	names := make([]string, len(status.DelegatedIpam.Pools))
	for i, p := range status.DelegatedIpam.Pools {
		names[i] = p.Pool
	}
	return names
}

// poolName returns the pool that a request with a value of --pool has.
func poolName(name string) string { return cmp.Or(name, client.DefaultPool) }
