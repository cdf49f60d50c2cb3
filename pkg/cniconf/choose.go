package cniconf

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// maxFound bounds how many files an error names.
const maxFound = 10

// source is where configurations come from: one file, or the files of a folder.
type source struct {
	dir, file string
}

// String names the source as a person knows it.
func (s source) String() string {
	if s.file != "" {
		return "file " + s.file
	}
	return "folder " + s.dir
}

// folder is the one in which changes show.
func (s source) folder() string {
	if s.file != "" {
		return filepath.Dir(s.file)
	}
	return s.dir
}

// read returns the source's files in the order in which they are to be tried.
func (s source) read() ([]candidate, error) {
	if s.file != "" {
		return []candidate{readCandidate(s.file)}, nil
	}
	return readFolder(s.dir)
}

// choose returns the network for a pool: the first file of the wanted network, or,
// if none is wanted, the first whose chain delegates IPAM. lastFile is the
// file in use; while that one is broken no later file takes its place, because a file
// half written must not switch a pool to another network for a moment.
func choose(all []candidate, wanted, lastFile string) (Network, error) {
	for _, c := range all {
		switch {
		case c.broken() && c.file == lastFile:
			return Network{}, fmt.Errorf("%s: %w", c.file, c.err)
		case c.broken(), wanted != "" && c.name != wanted, wanted == "" && c.err != nil:
			continue
		case c.err != nil:
			return Network{}, fmt.Errorf("%s is the configuration of network %q, but %w", c.file, wanted, c.err)
		}
		return c.network, nil
	}
	return Network{}, errors.New(passedOver(all, wanted))
}

// passedOver says which files there were and why none of them would do.
func passedOver(all []candidate, wanted string) string {
	expected := "expected a .conflist, .conf or .json file whose plugin chain has a plugin with ipam.type"
	if wanted != "" {
		expected = fmt.Sprintf("expected a .conflist, .conf or .json file of network %q with a plugin that has ipam.type", wanted)
	}
	if len(all) == 0 {
		return expected + "; found no such file"
	}
	var found []string
	for i, c := range all {
		if i == maxFound {
			found = append(found, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		reason := fmt.Sprintf("is of network %q", c.name)
		if c.err != nil {
			reason = c.err.Error()
		}
		found = append(found, fmt.Sprintf("%s (%s)", filepath.Base(c.file), reason))
	}
	return expected + "; found " + strings.Join(found, ", ")
}
