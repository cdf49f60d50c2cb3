package cmdline

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// AddVersion gives a program the flag --version and the command version, which it returns. Both
// print the same: the text of cobra. Another one would need cobra's templates, and with the package
// text/template the linker keeps 4 MB more of each program.
func AddVersion(root *cobra.Command, version string) *cobra.Command {
	program := root.Name()
	root.Version = fmt.Sprintf("%s (%s %s/%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Long:    "Print the version of this program, of Go, and the platform, as --version does.",
		Example: "  " + program + " version",
		Args:    Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s version %s\n", program, root.Version)
			return err
		},
	}
	root.AddCommand(cmd)
	return cmd
}

// Version returns the version of the build if there is one, else the one that Go wrote into the
// binary: the version of the module or the commit.
func Version(build string) string {
	if build != "" {
		return build
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return buildVersion(info)
}

// buildVersion returns the version of a module that was installed as one, else the commit, else
// "unknown".
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
