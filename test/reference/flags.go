package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	bridge "github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-bridge/cli"
	cri "github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-cri/cli"
	sidecar "github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam/cli"
)

// flagTables returns the tables of the commands of each program and of their flags. The flags of serve
// and those of a program without a command have tables; another command that has the same flag has
// no row for it. Flags that several commands have are in one row.
func flagTables(string) (map[string]string, error) {
	tables := map[string]string{}
	for _, root := range []*cobra.Command{sidecar.Command(nil, "v"), bridge.Command(nil, "v"), cri.Command(nil, "v")} {
		if rows := commandRows(root); len(rows) > 1 { // more than version
			tables["commands of "+root.Name()] = table(rows, "", "command", "purpose")
		}
		main := root
		if serve, _, err := root.Find([]string{"serve"}); err == nil {
			main = serve
		}
		var rows [][]string
		main.Flags().VisitAll(func(f *pflag.Flag) { rows = append(rows, []string{flagName(f), code(f.DefValue), markdown(f.Usage)}) })
		tables["flags of "+main.CommandPath()] = table(rows, "flag", "default", "meaning")
		if rows := otherRows(root, main); len(rows) > 0 {
			tables["other flags of "+root.Name()] = table(rows, "command", "flag", "default", "meaning")
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

// otherRows returns a row for each flag of a command that main lacks, by command.
func otherRows(root, main *cobra.Command) (rows [][]string) {
	index := map[string]int{}
	var visit func(*cobra.Command)
	visit = func(parent *cobra.Command) {
		for _, c := range parent.Commands() {
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if c == main || sameFlag(f, main.Flags().Lookup(f.Name)) || f.Name == "help" {
					return
				}
				command := code(strings.TrimPrefix(c.CommandPath(), root.Name()+" "))
				row := []string{command, flagName(f), code(f.DefValue), markdown(f.Usage)}
				key := fmt.Sprint(row[1:])
				if i, ok := index[key]; ok {
					rows[i][0] += ", " + command
					return
				}
				index[key] = len(rows)
				rows = append(rows, row)
			})
			visit(c)
		}
	}
	visit(root)
	return rows
}

func sameFlag(a, b *pflag.Flag) bool {
	return b != nil && a.Name == b.Name && a.DefValue == b.DefValue && a.Usage == b.Usage
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
