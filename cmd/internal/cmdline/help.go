package cmdline

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// The groups of commands in the help text of a program.
const (
	GroupRun         = "Run"
	GroupAddresses   = "Addresses"
	GroupDiagnosis   = "Diagnosis"
	GroupMaintenance = "Maintenance"
)

// AddGroup adds commands below a title of the help text.
func AddGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// printUsage prints the usage that cobra prints, without its second usage line for a command that has
// subcommands and runs without one, too.
func printUsage(c *cobra.Command) error {
	var text strings.Builder
	out := c.OutOrStderr()
	c.SetOut(&text)
	err := new(cobra.Command).UsageFunc()(c)
	c.SetOut(out)
	if err == nil {
		_, err = io.WriteString(out, strings.Replace(text.String(), c.UseLine()+"\n  "+c.CommandPath()+" [command]", c.UseLine(), 1))
	}
	return err
}
