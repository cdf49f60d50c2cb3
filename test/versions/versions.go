// Package versions has the versions of the real programs that the tests run.
package versions

import (
	_ "embed"
	"strings"
)

// file has a line for each program, with the fields of Program.
//
//go:embed versions.txt
var file string

// Program is a real program, or several that are released together.
type Program struct {
	// Name is that of versions.txt, Version such as "v1.20.2", and Module its Go module.
	Name, Version, Module string
	// Pins are the directories of the modules that require it, relative to the root of the repository.
	Pins []string
}

// All returns all programs.
func All() []Program {
	var all []Program
	for line := range strings.Lines(file) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
			all = append(all, Program{fields[0], fields[1], fields[2], fields[3:]})
		}
	}
	return all
}

// Of returns the version of a program; empty for an unknown one.
func Of(name string) string {
	for _, p := range All() {
		if p.Name == name {
			return p.Version
		}
	}
	return ""
}
