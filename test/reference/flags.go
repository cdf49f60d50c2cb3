package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	bridge "github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-bridge/cli"
	cri "github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-cri/cli"
	daemon "github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam/cli"
)

// flagTables returns the tables of the commands of each program and of their flags. The flags of serve
// and those of a program without a command have tables; another command has a row with its own flags, whose
// meanings its help has.
func flagTables(string) (map[string]string, error) {
	tables := map[string]string{}
	for _, root := range []*cobra.Command{daemon.Command(nil, "v"), bridge.Command(nil, "v"), cri.Command(nil, "v")} {
		if rows := commandRows(root); len(rows) > 1 { // more than version
			tables["commands of "+root.Name()] = table(rows, "", "command", "purpose")
		}
		main := root
		if serve, _, err := root.Find([]string{"serve"}); err == nil {
			main = serve
		}
		var rows [][]string
		main.Flags().VisitAll(func(f *pflag.Flag) { rows = append(rows, []string{withDefault(f), markdown(f.Usage)}) })
		tables["flags of "+main.CommandPath()] = table(rows, "flag and default", "meaning")
		if rows := otherRows(root, main); len(rows) > 0 {
			tables["other flags of "+root.Name()] = table(rows, "command", "flags")
		}
	}
	return tables, nil
}

// commandRows returns a row for each command, by group; hidden commands are last.
func commandRows(root *cobra.Command) (rows [][]string) {
	add := func(title string, in func(*cobra.Command) bool) {
		for _, c := range root.Commands() {
			if in(c) {
				rows = append(rows, []string{title, code(c.Use), c.Short})
				title = ""
			}
		}
	}
	for _, g := range root.Groups() {
		add(strings.TrimSuffix(g.Title, ":"), func(c *cobra.Command) bool { return c.GroupID == g.ID && !c.Hidden })
	}
	add("For manifests", func(c *cobra.Command) bool { return c.Hidden })
	add("Other", func(c *cobra.Command) bool { return c.GroupID == "" })
	return rows
}

// otherRows returns a row for each command with flags that main lacks.
func otherRows(root, main *cobra.Command) (rows [][]string) {
	var visit func(*cobra.Command)
	visit = func(parent *cobra.Command) {
		for _, c := range parent.Commands() {
			var flags []string
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if c != main && !sameFlag(f, main.Flags().Lookup(f.Name)) && f.Name != "help" {
					flags = append(flags, flagName(f))
				}
			})
			if len(flags) > 0 {
				rows = append(rows, []string{code(strings.TrimPrefix(c.CommandPath(), root.Name()+" ")), strings.Join(flags, ", ")})
			}
			visit(c)
		}
	}
	visit(root)
	return rows
}

func sameFlag(a, b *pflag.Flag) bool {
	return b != nil && a.Name == b.Name && a.DefValue == b.DefValue && a.Usage == b.Usage
}

// withDefault returns the flag with its default, unless that is nothing.
func withDefault(f *pflag.Flag) string {
	if f.DefValue == "" || f.DefValue == "false" {
		return flagName(f)
	}
	return flagName(f) + " (" + code(f.DefValue) + ")"
}

// flagName returns the flag with the placeholder of its value.
func flagName(f *pflag.Flag) string {
	text := "--" + f.Name
	if f.Value.Type() != "bool" {
		text += " " + f.Value.Type()
	}
	if f.Shorthand != "" {
		return code("-"+f.Shorthand) + ", " + code(text)
	}
	return code(text)
}

var (
	codeInText = regexp.MustCompile("`[^`]+`" + `|--[a-z0-9-]+(?:=\d+)?|/(?:metrics|readyz|healthz)\b|"\*"|:port\b|\$\{\w+\}`)
	pageInText = regexp.MustCompile(`docs/(\w+/([\w-]+\.md))`)
)

// markdown returns a help text with its flags as code and its pages as links.
func markdown(text string) string {
	text = codeInText.ReplaceAllStringFunc(text, func(s string) string { return code(strings.Trim(s, "`")) })
	return pageInText.ReplaceAllString(text, "[$2](../$1)")
}
