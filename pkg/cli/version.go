package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (d dependencies) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Long:    "Print the version of this program, of Go, and the platform. `delegated-ipam status` shows the version of a running sidecar.",
		Example: "  delegated-ipam version",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "delegated-ipam %s\n%s %s/%s\n", d.version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
