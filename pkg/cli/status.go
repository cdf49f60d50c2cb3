package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// statusOptions are the flags of `status`.
type statusOptions struct {
	clientFlags
	verbose bool
}

// statusCommand is `status`.
func (p program) statusCommand() *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the sidecar",
		Long: `Show the state of the sidecar: whether it can hand out addresses and if not why,
the plugin behind each pool, what waits or went wrong, and the options of serve that
are not the default, with where each came from.

The exit status is 0 if the sidecar could be asked, ready or not.`,
		Example: `  delegated-ipam status

  # As a condition of a script
  delegated-ipam status -o json | jq -e '."delegated-ipam".ready'`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.status(cmd, *o) },
	}
	o.register(cmd, p.env)
	option.AddSwitch(cmd.Flags(), &o.verbose, "verbose", "show every option of serve, and what the profile of each plugin says")
	return cmd
}

func (p program) status(cmd *cobra.Command, o statusOptions) error {
	c := p.connect(o.clientFlags)
	answer, err := c.health(cmd.Context())
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if o.output == outputJSON {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	return page{cmd.OutOrStdout(), p.now(), o.verbose}.print(answer.DelegatedIpam)
}

// health asks for the status; one without our part is an error.
func (c connection) health(ctx context.Context) (*models.StatusResponse, error) {
	foreign := fmt.Errorf("%s is no socket of delegated-ipam: its status has no part \"delegated-ipam\" (cilium-agent's own has none)", c.socket)
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
