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

// flagTables returns the tables of the commands of each program and of the flags of serve and of a program
// without a command. The flags of another command are in its row; its help has their meanings.
func flagTables(string) (map[string]string, error) {
	tables := map[string]string{}
	for _, root := range []*cobra.Command{daemon.Command(nil, "v"), bridge.Command(nil, "v"), cri.Command(nil, "v")} {
		main := root
		if serve, _, err := root.Find([]string{"serve"}); err == nil {
			main = serve
		}
		if rows := commandRows(root, main); len(rows) > 1 { // more than version
			tables["commands of "+root.Name()] = table(rows, "command", "purpose", "flags")
		}
		var rows [][]string
		main.Flags().VisitAll(func(f *pflag.Flag) {
			if main.Name() == "serve" || f.Name != "log-format" && f.Name != "log-level" { // as of serve
				rows = append(rows, []string{withDefault(f), markdown(f.Usage)})
			}
		})
		tables["flags of "+main.CommandPath()] = table(rows, "flag and default", "meaning")
	}
	return tables, nil
}

// commandRows returns a row for each command, by group; those without a group and the hidden ones are last.
func commandRows(root, main *cobra.Command) (rows [][]string) {
	add := func(in func(*cobra.Command) bool) {
		for _, c := range root.Commands() {
			if in(c) {
				rows = append(rows, []string{code(c.Use), c.Short, strings.Join(otherFlags(c, main), ", ")})
			}
		}
	}
	for _, g := range root.Groups() {
		add(func(c *cobra.Command) bool { return c.GroupID == g.ID && !c.Hidden })
	}
	add(func(c *cobra.Command) bool { return c.Hidden })
	add(func(c *cobra.Command) bool { return c.GroupID == "" })
	return rows
}

// otherFlags returns the flags of a command that main lacks, without those that the page names once, and those of
// its subcommands after their names.
func otherFlags(c, main *cobra.Command) (flags []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if c != main && !sameFlag(f, main.Flags().Lookup(f.Name)) && !isCommon(f) {
			flags = append(flags, flagName(f))
		}
	})
	for _, sub := range c.Commands() {
		if of := otherFlags(sub, main); len(of) > 0 {
			flags = append(flags, code(sub.Name())+": "+strings.Join(of, ", "))
		}
	}
	return flags
}

func isCommon(f *pflag.Flag) bool {
	return f.Name == "help" || f.Name == "host" || f.Name == "kubeconfig" || f.Name == "output" && f.Value.Type() == "table|json"
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
