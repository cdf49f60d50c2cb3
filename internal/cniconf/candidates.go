package cniconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

const (
	// maxFile bounds a configuration file, in bytes; real ones have a few kilobytes.
	maxFile = 1 << 20
	// maxListed is how many files an error names.
	maxListed = 10
)

// source is the origin of configurations: one file, or the files of a directory.
type source struct {
	dir, file string
}

func (s source) String() string {
	if s.file != "" {
		return "file " + s.file
	}
	return "directory " + s.dir
}

// read returns the files of the source that a container runtime would read, in the order of their
// priority. The error does not contain the directory; the caller adds it.
func (s source) read() ([]candidate, error) {
	if s.file != "" {
		return []candidate{readCandidate(s.file)}, nil
	}
	if _, err := os.Stat(s.dir); err != nil {
		return nil, files.Cause(err)
	}
	// os.ReadDir, which libcni uses, sorts by name.
	paths, err := libcni.ConfFiles(s.dir, []string{".conflist", ".conf", ".json"})
	var candidates []candidate
	for _, path := range paths {
		candidates = append(candidates, readCandidate(path))
	}
	return candidates, err
}

// withdrawn reports whether the only file of the source does not exist: its network must not be used
// any more, even if it was read before (docs/install/ranges.md). A file of a directory may be missing for a
// moment, while another program replaces it.
func (s source) withdrawn(candidates []candidate) bool {
	return s.file != "" && len(candidates) == 1 && candidates[0].missing
}

// candidate is one file that may configure a pool.
type candidate struct {
	file string
	// name is the name of the network; empty if the file could not be parsed.
	name    string
	network call.Network
	// err is why the file has no network: errNoIPAM, errLaterIPAM, or why it is invalid.
	err     error
	missing bool
	// document is the parsed file.
	document document
}

// invalid reports whether the file could not be parsed, as while it is being written.
func (c candidate) invalid() bool {
	return c.err != nil && !errors.Is(c.err, errNoIPAM) && !errors.Is(c.err, errLaterIPAM)
}

// ofPlugin returns the candidate with the plugin of a type, if that is not empty.
func (c candidate) ofPlugin(pluginType string) candidate {
	if pluginType == "" || c.invalid() {
		return c
	}
	c.network, c.err = c.document.delegatingNetwork(pluginType)
	c.network.File, c.network.Shared = c.file, inConfigMap(c.file)
	return c
}

func readCandidate(file string) candidate {
	c := candidate{file: file}
	data, err := files.Read(file, maxFile)
	if err != nil {
		c.err, c.missing = err, errors.Is(err, fs.ErrNotExist)
		return c
	}
	d, err := parseFile(file, data)
	if err != nil {
		c.err = err
		return c
	}
	c.name, c.document = d.network.Name, d
	c.network, c.err = d.delegatingNetwork("")
	c.network.File, c.network.Shared = file, inConfigMap(file)
	return c
}

// choose returns the network of a pool, by the first file of the named network or, without a name, the
// first file whose chain delegates IPAM. A name NETWORK/TYPE also names the plugin of the chain. While
// lastFile, the file in use, is invalid, no later file replaces it: a partly written file must not switch
// a pool to another network for a moment.
func choose(candidates []candidate, name, lastFile string) (call.Network, error) {
	name, pluginType, _ := strings.Cut(name, "/")
	for _, c := range candidates {
		c = c.ofPlugin(pluginType)
		switch {
		case c.invalid() && c.file == lastFile:
			return call.Network{}, c.err
		case c.invalid(), name != "" && c.name != name, name == "" && errors.Is(c.err, errNoIPAM):
			continue
		case c.err != nil:
			return call.Network{}, fmt.Errorf("%s is the configuration of network %q, but %w", c.file, c.name, c.err)
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
	for _, c := range candidates[:min(len(candidates), maxListed)] {
		reason := fmt.Sprintf("defines network %q", c.name)
		if c.err != nil {
			reason = c.err.Error()
		}
		found = append(found, fmt.Sprintf("%s (%s)", filepath.Base(c.file), reason))
	}
	if more := len(candidates) - len(found); more > 0 {
		found = append(found, fmt.Sprintf("and %d more", more))
	}
	return errors.New(expected + "; found " + strings.Join(found, ", "))
}

// dataLink is the link by which the kubelet replaces the files of a ConfigMap volume atomically:
// FILE -> ..data/FILE, and ..data -> the directory of the present content, whose name begins
// with two dots (AtomicWriter in Kubernetes' pkg/volume/util). A Secret and a projected volume
// have it, too, and are as shared.
const dataLink = "..data"

// inConfigMap reports whether a file is in such a volume, or cannot be resolved. A file that is
// mounted alone (subPath) is a plain bind mount, and cannot be distinguished from one of the node.
func inConfigMap(file string) bool {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		// Either there is no file, or the kubelet has just removed the previous content.
		return true
	}
	for dir := filepath.Dir(real); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if !strings.HasPrefix(filepath.Base(dir), "..") {
			continue
		}
		// It need not name this directory any more: the kubelet may have replaced it meanwhile.
		if target, err := os.Readlink(filepath.Join(filepath.Dir(dir), dataLink)); err == nil && strings.HasPrefix(target, "..") {
			return true
		}
	}
	return false
}
