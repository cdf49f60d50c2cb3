// Package docs compares the documentation with the command lines of both programs.
package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	bridge "github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-bridge/cli"
	"github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam/cli"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
)

var update = flag.Bool("update", false, "rewrite the tables of flags in the documentation")

const page = "../../docs/reference/command-line.md"

// generated is a table between its markers.
var generated = regexp.MustCompile(`(?s)<!-- flags: ([\w-]+) -->\n(.*?)<!-- end -->\n`)

func TestFlagTables(t *testing.T) {
	text := read(t)
	want := tables(t)
	found := map[string]bool{}
	rewritten := generated.ReplaceAllStringFunc(text, func(block string) string {
		m := generated.FindStringSubmatch(block)
		found[m[1]] = true
		if _, ok := want[m[1]]; !ok {
			t.Errorf("%s has a table %q; want %v", page, m[1], want)
		}
		return fmt.Sprintf("<!-- flags: %s -->\n%s<!-- end -->\n", m[1], want[m[1]])
	})
	for name := range want {
		if !found[name] {
			t.Errorf("%s has no table %q", page, name)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(rewritten), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for i, line := range strings.Split(rewritten, "\n") {
		if got := strings.Split(text, "\n"); i >= len(got) || got[i] != line {
			t.Fatalf("line %d of %s differs from the flags; want\n%s\n(go test ./test/docs -update rewrites it)", i+1, page, line)
		}
	}
}

// Every flag and variable on the page, in a table or not, is one of a program, and none is missing.
func TestFlagNames(t *testing.T) {
	// A flag of cilium-agent, to which a flag of the bridge refers, and the flags of the
	// command-line library.
	known := map[string]bool{"--ipam-cilium-node-update-rate": true, "--help": true, "--version": true}
	for _, c := range commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			known["--"+f.Name] = true
			for _, variable := range f.Annotations[options.EnvAnnotation] {
				known[variable] = true
			}
		})
	}
	text := read(t)
	for _, name := range regexp.MustCompile(`--[a-z][a-z0-9-]+|\bDELEGATED_IPAM_\w+`).FindAllString(text, -1) {
		if !known[name] {
			t.Errorf("%s has %s, which is not an option of a command", page, name)
		}
	}
	for name := range known {
		if !strings.Contains(text, name) {
			t.Errorf("%s lacks %s", page, name)
		}
	}
}

// commands returns every command of both programs.
func commands() []*cobra.Command {
	sidecar := cli.Command(nil, "test")
	all := slices.Clone(sidecar.Commands())
	for _, c := range sidecar.Commands() {
		all = append(all, c.Commands()...)
	}
	program := bridge.Command(nil, "test")
	all = append(all, sidecar, program)
	return append(all, program.Commands()...)
}

// isOfBridge reports whether a command is one of the bridge's program, below its root.
func isOfBridge(c *cobra.Command) bool {
	return c.HasParent() && c.Root().Name() == "delegated-ipam-bridge"
}

// tables returns the tables of flags by name. Each flag of each command is in one of them: in that
// of its program, in "client" for flags that several commands share, or in "commands". Each command
// of the bridge's program has a table with its name, unless another table has its flags.
func tables(t *testing.T) map[string]string {
	t.Helper()
	shared := map[string]*pflag.Flag{}
	var client, own, serve, rest []string
	all, ofBridge := commands(), map[string]string{}
	serveFlags := find(t, all, "serve").Flags()
	for _, c := range all {
		if isOfBridge(c) {
			addOwnTable(ofBridge, c)
			continue
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			switch first := shared[f.Name]; {
			case c.Name() == "serve":
				serve = append(serve, row(name(f), value(f), code(f.Annotations[options.EnvAnnotation]...), reload(f), usage(f)))
			case c.Name() == "delegated-ipam-bridge":
				rest = append(rest, row(name(f), value(f), usage(f)))
			case same(f, serveFlags.Lookup(f.Name)):
				// It is a flag of serve, which doctor and the profile commands have, too.
			case first != nil && same(f, first):
				// It is in the table already.
			case f.Name == "host" || f.Name == "output":
				shared[f.Name] = f
				client = append(client, row(name(f), value(f), usage(f)))
			default:
				own = append(own, row(code(commandName(c)), name(f), value(f), usage(f)))
			}
		})
	}
	slices.Sort(own)
	maps.Copy(ofBridge, map[string]string{
		"client":   table(client, "flag", "default", "meaning"),
		"commands": table(own, "command", "flag", "default", "meaning"),
		"serve":    table(serve, "flag", "default", "environment", "SIGHUP", "meaning"),
		"bridge":   table(rest, "flag", "default", "meaning"),
	})
	return ofBridge
}

// addOwnTable adds the table of a command with its name, unless it has no flags or there is an equal
// table.
func addOwnTable(tables map[string]string, c *cobra.Command) {
	var rows []string
	c.Flags().VisitAll(func(f *pflag.Flag) { rows = append(rows, row(name(f), value(f), usage(f))) })
	text := table(rows, "flag", "default", "meaning")
	if len(rows) > 0 && !slices.Contains(slices.Collect(maps.Values(tables)), text) {
		tables[c.Name()] = text
	}
}

// commandName returns the words that call a command of the sidecar's program.
func commandName(c *cobra.Command) string {
	return strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
}

func find(t *testing.T, all []*cobra.Command, name string) *cobra.Command {
	t.Helper()
	i := slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == name })
	if i < 0 {
		t.Fatalf("no command %s", name)
	}
	return all[i]
}

// same reports whether two commands have the same flag.
func same(a, b *pflag.Flag) bool {
	return a != nil && b != nil && a.Name == b.Name && a.Shorthand == b.Shorthand && a.DefValue == b.DefValue && a.Usage == b.Usage && a.Value.Type() == b.Value.Type()
}

// name returns the flag with the placeholder of its value.
func name(f *pflag.Flag) string {
	text := "--" + f.Name
	if kind := f.Value.Type(); kind != "bool" {
		text += " " + kind
	}
	if f.Shorthand != "" {
		return code("-"+f.Shorthand) + ", " + code(text)
	}
	return code(text)
}

func value(f *pflag.Flag) string {
	if f.DefValue == "" {
		return ""
	}
	return code(f.DefValue)
}

// reload returns the effect of SIGHUP.
func reload(f *pflag.Flag) string {
	if effects := f.Annotations[options.ReloadAnnotation]; len(effects) > 0 {
		return effects[0]
	}
	return "restart"
}

// usage returns the help text with its flags as code.
func usage(f *pflag.Flag) string {
	return regexp.MustCompile(`--[a-z0-9-]+|/(metrics|readyz|healthz)\b|"\*"|:port\b`).ReplaceAllStringFunc(f.Usage, func(s string) string { return code(s) })
}

func code(texts ...string) string { return "`" + strings.Join(texts, "`, `") + "`" }

func row(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func table(rows []string, head ...string) string {
	return row(head...) + "|" + strings.Repeat("---|", len(head)) + "\n" + strings.Join(rows, "")
}

func read(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
