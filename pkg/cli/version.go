package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// versionCommand is `version`.
func (p program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Long:    "Print the version of this program, of Go, and the platform. `delegated-ipam status` tells the version of a running sidecar.",
		Example: "  delegated-ipam version",
		Args:    takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "delegated-ipam %s\n%s %s/%s\n", p.version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
