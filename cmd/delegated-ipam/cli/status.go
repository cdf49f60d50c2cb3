package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/output"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// statusOptions are the flags of `status`.
type statusOptions struct {
	clientFlags
	verbose bool
}

func (d dependencies) statusCommand() *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the sidecar",
		Long: `Show the state of the sidecar: whether it can allocate addresses and if not why, the
plugin of each pool, pending releases and errors, and the options of serve that are not
the default, each with its source.

The exit status is 0 if the sidecar answers, ready or not.`,
		Example: `  delegated-ipam status

  # As a condition of a script
  delegated-ipam status -o json | jq -e '."delegated-ipam".ready'`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.status(cmd, *o) },
	}
	o.register(cmd, d.env, options.Option{Name: "verbose", Value: options.Bool(&o.verbose), Help: "show every option of serve, and the profile of each plugin"})
	return cmd
}

func (d dependencies) status(cmd *cobra.Command, o statusOptions) error {
	c := d.connect(o.clientFlags)
	status, err := c.health(cmd.Context())
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if o.output == outputJSON {
		return output.JSON(cmd.OutOrStdout(), status)
	}
	return output.Status(cmd.OutOrStdout(), status.DelegatedIpam, d.now(), o.verbose)
}

// health returns the status; one without the part "delegated-ipam" is an error.
func (c connection) health(ctx context.Context) (*models.StatusResponse, error) {
	foreign := fmt.Errorf("%s is not a socket of delegated-ipam: its status has no part \"delegated-ipam\" (that of cilium-agent has none)", c.socket)
	api, err := c.client()
	if err != nil {
		return nil, err
	}
	answer, err := api.Status(ctx)
	switch {
	case errors.Is(err, client.ErrNotSidecar):
		return nil, foreign
	case err != nil:
		return nil, c.explain(ctx, err, nil)
	}
	status, err := decode[models.StatusResponse](answer.Raw)
	if err != nil {
		return nil, err
	}
	if own := status.DelegatedIpam; slices.Contains(own.Pools, nil) || slices.Contains(own.Quarantined, nil) || slices.Contains(own.Options, nil) {
		return nil, foreign
	}
	return status, nil
}
