package cmdline

import "github.com/spf13/cobra"

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
