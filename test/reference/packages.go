package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/delegated-ipam/delegated-ipam/"

// packageGraph returns a diagram of the programs and the packages that they import, without those that
// import no other one of the module. An import that follows from others is left out.
func packageGraph(string) (map[string]string, error) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./cmd/...", "./internal/...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		paths := strings.Fields(line)
		from := packageNode(paths[0])
		for _, path := range paths[1:] {
			if to := packageNode(path); to != "" && to != from && from != "" && !slices.Contains(imports[from], to) {
				imports[from] = append(imports[from], to)
			}
		}
	}
	var edges []string
	for from, all := range imports {
		direct := slices.DeleteFunc(slices.Sorted(slices.Values(all)), func(to string) bool {
			return len(imports[to]) == 0 || slices.ContainsFunc(all, func(other string) bool { return other != to && reaches(imports, other, to) })
		})
		if len(direct) > 0 {
			edges = append(edges, fmt.Sprintf("  %s --> %s\n", from, strings.Join(direct, " & ")))
		}
	}
	slices.Sort(edges)
	return map[string]string{"packages": "```mermaid\nflowchart LR\n" + strings.Join(edges, "") + "```\n"}, nil
}

// packageNode returns the name of a package in the diagram, or "" if the diagram omits it. A package includes
// its subdirectories, except internal/daemon, which only assembles them.
func packageNode(path string) string {
	path, ours := strings.CutPrefix(path, module)
	kind, name, _ := strings.Cut(path, "/")
	if !ours || kind != "cmd" && kind != "internal" || name == "testing" {
		return ""
	}
	first, below, _ := strings.Cut(name, "/")
	switch below, _, _ = strings.Cut(below, "/"); {
	case kind == "cmd" && first == "internal":
		return "" // what the programs share
	case first == "daemon" && below != "":
		return first + "/" + below
	}
	return first
}

// reaches reports whether a package imports another one, or one that does.
func reaches(imports map[string][]string, from, to string) bool {
	return slices.ContainsFunc(imports[from], func(next string) bool { return next == to || reaches(imports, next, to) })
}
