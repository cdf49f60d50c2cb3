package cniconf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containernetworking/cni/libcni"
)

// maxFile bounds a configuration file, in bytes; real ones have a few kilobytes.
const maxFile = 1 << 20

// candidate is one file that may be a pool's configuration.
type candidate struct {
	file string
	// name is the network's; empty if the file could not be read.
	name    string
	network Network
	// err is why it gives no network: errNoIPAM, or what is broken in it.
	err error
}

// broken tells that the file should be a configuration and cannot be read as one,
// as while somebody writes it.
func (c candidate) broken() bool { return c.err != nil && !errors.Is(c.err, errNoIPAM) }

// readFolder reads every file of a folder that a container runtime would look at
// (.conflist, .conf, .json), in name order.
func readFolder(dir string) ([]candidate, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	files, err := libcni.ConfFiles(dir, []string{".conflist", ".conf", ".json"})
	if err != nil {
		return nil, err
	}
	// os.ReadDir, by which libcni looks, has them in name order.
	all := make([]candidate, len(files))
	for i, file := range files {
		all[i] = readCandidate(file)
	}
	return all, nil
}

// readCandidate reads one file.
func readCandidate(file string) candidate {
	c := candidate{file: file}
	d, err := readDocument(file)
	if err != nil {
		c.err = err
		return c
	}
	c.name = d.network.Name
	c.network, c.err = d.delegating()
	c.network.File = file
	return c
}

func readDocument(file string) (document, error) {
	data, err := readBounded(file)
	if err != nil {
		return document{}, err
	}
	if filepath.Ext(file) != ".conflist" {
		return parseSingle(data)
	}
	d, err := parseList(data)
	if err != nil || d.inlineOnly {
		return d, err
	}
	return d, d.addFolder(filepath.Join(filepath.Dir(file), d.network.Name))
}

// addFolder adds the plugins that lie in the network's own folder, one in each
// .conf file (CNI spec 1.1, "loadOnlyInlinedPlugins").
func (d *document) addFolder(dir string) error {
	files, err := libcni.ConfFiles(dir, []string{".conf"})
	if errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := readBounded(file)
		if err != nil {
			return fmt.Errorf("its plugin %s: %w", file, err)
		}
		d.plugins = append(d.plugins, data)
	}
	return nil
}

// readBounded reads a regular file of at most maxFile bytes. Links are followed,
// because a mounted ConfigMap consists of links. It never waits for a FIFO's writer.
func readBounded(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		// The path is named by whoever reports it.
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, pathErr.Err
		}
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no regular file (%s)", info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return data, err
}
