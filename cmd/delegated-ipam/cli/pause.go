package cli

import "github.com/spf13/cobra"

func (d dependencies) pauseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pause",
		Short: "Do nothing until SIGTERM or SIGINT",
		Long: `Do nothing until SIGTERM or SIGINT, then end with status 0: for a pod whose init
containers do the work, such as that of the uninstall DaemonSet.`,
		Example: `  # The last container of a pod whose init container has removed the state directory
  delegated-ipam pause`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			<-cmd.Context().Done()
			return nil
		},
	}
}
