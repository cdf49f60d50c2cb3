package cniconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containernetworking/cni/libcni"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// maxFile bounds a configuration file, in bytes; real ones have a few kilobytes.
const maxFile = 1 << 20

// candidate is one file that may configure a pool.
type candidate struct {
	file string
	// name is the name of the network; empty if the file could not be parsed.
	name    string
	network call.Network
	// err is why the file has no network: errNoIPAM, or why it is invalid.
	err error
	// missing reports that the file does not exist.
	missing bool
}

// invalid reports whether the file could not be parsed, as while it is being written.
func (c candidate) invalid() bool { return c.err != nil && !errors.Is(c.err, errNoIPAM) }

// readDir reads the files of a directory that a container runtime would read (.conflist,
// .conf, .json), in name order. The error does not contain the directory; the caller adds it.
func readDir(dir string) ([]candidate, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, files.Cause(err)
	}
	paths, err := libcni.ConfFiles(dir, []string{".conflist", ".conf", ".json"})
	if err != nil {
		return nil, err
	}
	// os.ReadDir, which libcni uses, sorts by name.
	candidates := make([]candidate, len(paths))
	for i, file := range paths {
		candidates[i] = readCandidate(file)
	}
	return candidates, nil
}

// ParseList returns the network of a .conflist with this content, without plugins from the network's
// own directory. File is empty. The error is why the sidecar cannot use it.
func ParseList(data []byte) (call.Network, error) {
	d, err := parseList(data)
	if err != nil {
		return call.Network{}, err
	}
	return d.delegatingNetwork()
}

// readCandidate reads one file.
func readCandidate(file string) candidate {
	c := candidate{file: file}
	data, err := files.Read(file, maxFile)
	if err != nil {
		c.err, c.missing = err, errors.Is(err, fs.ErrNotExist)
		return c
	}
	d, err := parseDocument(file, data)
	if err != nil {
		c.err = err
		return c
	}
	c.name = d.network.Name
	c.network, c.err = d.delegatingNetwork()
	c.network.File, c.network.Shared = file, inConfigMap(file)
	return c
}

// parseDocument parses the content of a file, and reads the network's own directory.
func parseDocument(file string, data []byte) (document, error) {
	if filepath.Ext(file) != ".conflist" {
		return parseSingle(data)
	}
	d, err := parseList(data)
	if err != nil || d.inlineOnly {
		return d, err
	}
	return d, d.addDir(filepath.Join(filepath.Dir(file), d.network.Name))
}

// addDir adds the plugins in the network's own directory, one in each .conf file (CNI spec
// 1.1, "loadOnlyInlinedPlugins").
func (d *document) addDir(dir string) error {
	paths, err := libcni.ConfFiles(dir, []string{".conf"})
	if errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, file := range paths {
		data, err := files.Read(file, maxFile)
		if err != nil {
			return fmt.Errorf("plugin %s: %w", file, err)
		}
		d.plugins = append(d.plugins, data)
	}
	return nil
}
