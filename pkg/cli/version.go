package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// programVersion is the version that the build was given, else what Go wrote
// into the binary: the module's version or the commit.
func programVersion(given string) string {
	if given != "" {
		return given
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return buildVersion(info)
}

// buildVersion is the version in build information: that of the module if it was
// installed as one, else the commit, else "unknown".
func buildVersion(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}

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
