// Package lostnodes finds nodes that were removed, and releases their addresses (docs/operate/operations.md,
// Lost nodes). delegated-ipam-bridge, which reads Nodes, and delegated-ipam reclaim, which runs plugins,
// exchange lost nodes and results in files.
package lostnodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
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

type Node struct {
	// Name is the name of the Node, and the --node-name of its sidecar.
	Name string `json:"name"`
	// AbsentSince is when the Node was first found absent.
	AbsentSince time.Time `json:"absentSince,omitzero"`
	// Owners are those that may hold addresses, as Expand reads them. One that holds none costs a DEL.
	Owners []string `json:"owners"`
	// Generations is the highest suffix -gN of their container IDs that the plugin's store has; 0 if
	// unknown.
	Generations int `json:"generations,omitempty"`
}

// AllOwners returns the owners, expanded. It fails if the node is invalid.
func (n Node) AllOwners() ([]string, error) {
	owners, err := Expand(n.Owners)
	if err == nil && (n.Name == "" || len(owners) == 0 || n.Generations < 0) {
		err = fmt.Errorf("node %q has the owners %q and %d generations; expected a name, at least one owner, and 0 or more", n.Name, owners, n.Generations)
	}
	return owners, err
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

func Write[T List | Report](file string, v T) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(file, append(data, '\n'), 0o644)
}

// maxOwners limits the owners of one node: no node has more pods.
const maxOwners = 65536

// span matches numbered owners: a prefix, the first number and the last.
var span = regexp.MustCompile(`^(.*?)(0|[1-9][0-9]*)\.\.(0|[1-9][0-9]*)$`)

// Expand returns owners, each once: "ciliumnode-0..2" stands for ciliumnode-0, ciliumnode-1 and
// ciliumnode-2, and any other text for itself. The error names the text and the expectation.
func Expand(texts []string) ([]string, error) {
	var owners []string
	for _, text := range texts {
		more, err := expand(text)
		if err != nil {
			return nil, err
		}
		if owners = append(owners, more...); len(owners) > maxOwners {
			return nil, fmt.Errorf("more than %d owners; expected those of one node", maxOwners)
		}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(owners, func(o string) bool {
		again := seen[o]
		seen[o] = true
		return again
	}), nil
}

func expand(text string) ([]string, error) {
	if text == "" {
		return nil, fmt.Errorf("owner %q; expected a name such as router, or names with numbers such as ciliumnode-0..41", text)
	}
	m := span.FindStringSubmatch(text)
	if m == nil {
		return []string{text}, nil
	}
	first, errFirst := strconv.Atoi(m[2])
	last, errLast := strconv.Atoi(m[3])
	if errFirst != nil || errLast != nil || first > last || last-first >= maxOwners {
		return nil, fmt.Errorf("owner %q; expected PREFIX and FIRST..LAST, of which the first is not above the last, at most %d in all", text, maxOwners)
	}
	owners := make([]string, 0, last-first+1)
	for n := first; n <= last; n++ {
		owners = append(owners, m[1]+strconv.Itoa(n))
	}
	return owners, nil
}
