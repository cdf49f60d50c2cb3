package cniconf

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// maxListed is how many files an error names.
const maxListed = 10

// source is the origin of configurations: one file, or the files of a directory.
type source struct {
	dir, file string
}

// String describes the source for errors.
func (s source) String() string {
	if s.file != "" {
		return "file " + s.file
	}
	return "directory " + s.dir
}

// directory returns the directory to watch for changes.
func (s source) directory() string {
	if s.file != "" {
		return filepath.Dir(s.file)
	}
	return s.dir
}

// read returns the files of the source, in the order of their priority.
func (s source) read() ([]candidate, error) {
	if s.file != "" {
		return []candidate{readCandidate(s.file)}, nil
	}
	return readDir(s.dir)
}

// withdrawn reports whether the only file of the source does not exist: its network must not be used
// any more, even if it was read before (docs/install/ranges.md). A file of a directory may be missing for a
// moment, while another program replaces it.
func (s source) withdrawn(candidates []candidate) bool {
	return s.file != "" && len(candidates) == 1 && candidates[0].missing
}

// choose returns the network of a pool: that of the first file of the named network or,
// without a name, that of the first file whose chain delegates IPAM. While lastFile, the
// file in use, is invalid, no later file replaces it: a partly written file must not switch
// a pool to another network for a moment.
func choose(candidates []candidate, name, lastFile string) (call.Network, error) {
	for _, c := range candidates {
		switch {
		case c.invalid() && c.file == lastFile:
			return call.Network{}, c.err
		case c.invalid(), name != "" && c.name != name, name == "" && c.err != nil:
			continue
		case c.err != nil:
			return call.Network{}, fmt.Errorf("%s is the configuration of network %q, but %w", c.file, name, c.err)
		}
		return c.network, nil
	}
	return call.Network{}, noneChosen(candidates, name)
}

// noneChosen returns an error that lists the candidates and why none was chosen.
func noneChosen(candidates []candidate, name string) error {
	expected := "expected a .conflist, .conf or .json file whose plugin chain has a plugin with ipam.type"
	if name != "" {
		expected = fmt.Sprintf("expected a .conflist, .conf or .json file of network %q with a plugin that has ipam.type", name)
	}
	if len(candidates) == 0 {
		return errors.New(expected + "; found no such file")
	}
	var found []string
	for i, c := range candidates {
		if i == maxListed {
			found = append(found, fmt.Sprintf("and %d more", len(candidates)-i))
			break
		}
		reason := fmt.Sprintf("defines network %q", c.name)
		if c.err != nil {
			reason = c.err.Error()
		}
		found = append(found, fmt.Sprintf("%s (%s)", filepath.Base(c.file), reason))
	}
	return errors.New(expected + "; found " + strings.Join(found, ", "))
}
