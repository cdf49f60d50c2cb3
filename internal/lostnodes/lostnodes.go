// Package lostnodes has the files through which delegated-ipam-bridge, which reads Nodes, and
// delegated-ipam reclaim, which runs plugins, exchange lost nodes and results (docs/operate/operations.md,
// Lost nodes).
package lostnodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// maxSize limits a file, in bytes: 10,000 nodes take about a megabyte.
const maxSize = 16 << 20

// List has the lost nodes: those without a Node object.
type List struct {
	// Time is when the Nodes were listed. A node may have returned since.
	Time time.Time `json:"time"`
	// Nodes are in the order in which they were lost.
	Nodes []Node `json:"nodes"`
}

// Node is one lost node.
type Node struct {
	// Name is the name of the Node, and the --node-name of its sidecar.
	Name string `json:"name"`
	// AbsentSince is when the Node was first found absent.
	AbsentSince time.Time `json:"absentSince,omitzero"`
	// Owners are those that may hold addresses, as Expand reads them.
	Owners []string `json:"owners"`
	// Generations is the highest suffix -gN of their container IDs that the plugin's store has; 0 if
	// unknown.
	Generations int `json:"generations,omitempty"`
}

// Report is the result for a List.
type Report struct {
	// Reclaimed are the names of the nodes of which every owner was released.
	Reclaimed []string `json:"reclaimed"`
	// Failed has for each other node the first error. A node of the list that is in neither was
	// not tried.
	Failed map[string]string `json:"failed"`
}

// Read reads a List or a Report, strictly. The error names the file.
func Read[T List | Report](file string) (T, error) {
	var v T
	data, err := files.Read(file, maxSize)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&v)
	}
	if err != nil {
		return v, fmt.Errorf("%s: %w; expected a file in JSON as delegated-ipam-bridge lost-nodes and delegated-ipam reclaim --report write it", file, err)
	}
	return v, nil
}

// Write replaces a file atomically. The file is not synced: it need not survive a crash of the
// machine.
func Write[T List | Report](file string, v T) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
