// Package spool keeps the DELs of a container runtime that could not be delivered: delegated-ipam-cni
// writes each into a file while the daemon cannot be reached, and the daemon carries it out later. The
// files survive a power loss. The package imports little, because the plugin starts for each call.
package spool

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"
)

// Entry is one DEL, and what distinguishes its sandbox from a later one of the same container ID.
type Entry struct {
	Version     int    `json:"version"`
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
	// Args is CNI_ARGS: some plugins find the lease by the pod's name.
	Args string `json:"args,omitempty"`
	// Written is when the runtime called DEL, before the wait for the daemon.
	Written time.Time `json:"written"`
	// NetNS is CNI_NETNS, and Device and Inode those of the namespace; empty and 0 if it was gone. They are
	// compared only: no file is opened by them.
	NetNS  string `json:"netns,omitempty"`
	Device uint64 `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
}

// String identifies the container interface.
func (e Entry) String() string {
	return fmt.Sprintf("network %q, container ID %s, interface %s", e.Network, e.ContainerID, e.IfName)
}

const (
	version = 1
	// maxEntry limits a file in bytes. The API limits CNI_ARGS to 16 KiB, which JSON may double.
	maxEntry = 64 << 10
	suffix   = ".del"
	// sumLength is the length of the checksum before the JSON, with its line feed.
	sumLength = 2*16 + 1
)

// Name returns the name of the file of a container interface in a network. It does not contain them, so
// that no text of a caller is a path.
func Name(network, containerID, ifName string) string {
	h := fnv.New128a()
	for _, text := range []string{network, containerID, ifName} {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)) + suffix
}

// name returns the name of the entry's file.
func (e Entry) name() string { return Name(e.Network, e.ContainerID, e.IfName) }

// checksum returns the line that precedes the JSON of an entry. FNV, because crypto/sha256 would add 0.1 ms to the start
// of each process of the CNI plugin.
func checksum(data []byte) []byte {
	h := fnv.New128a()
	h.Write(data)
	return fmt.Appendf(nil, "%x\n", h.Sum(nil))
}

// encode returns the content of a file: the checksum of the JSON as a line, and the JSON.
func (e Entry) encode() ([]byte, error) {
	e.Version = version
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	content := append(checksum(data), data...)
	if len(content) > maxEntry {
		return nil, fmt.Errorf("%d bytes; expected at most %d", len(content), maxEntry)
	}
	return content, nil
}

// decode returns the entry in the content of a file with a name, or why it has none.
func decode(name string, content []byte) (e Entry, err error) {
	if len(content) < sumLength {
		return e, errors.New("damaged: too short")
	}
	if !bytes.Equal(content[:sumLength], checksum(content[sumLength:])) {
		return e, errors.New("damaged: another checksum")
	}
	if err := json.Unmarshal(content[sumLength:], &e); err != nil {
		return e, fmt.Errorf("damaged: %w", err)
	}
	if e.Version != version {
		return e, fmt.Errorf("version %d; expected %d", e.Version, version)
	}
	if e.name() != name {
		return e, errors.New("the name is not that of its container interface")
	}
	return e, nil
}
