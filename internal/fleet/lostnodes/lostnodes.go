// Package lostnodes finds nodes that were removed, and releases their addresses (docs/operate/operations.md,
// Lost nodes). delegated-ipam-bridge, which reads Nodes, writes the container IDs of lost nodes into a file, and
// delegated-ipam reclaim, which runs plugins, writes them into another one with what became of each.
package lostnodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// List has the container IDs that lost nodes may hold, those of one node together.
type List struct {
	// Time is when the Nodes were listed. A node may have returned since.
	Time    time.Time `json:"time"`
	Targets []Target  `json:"targets"`
}

// Target is a container ID that a lost node may hold. One that holds nothing costs a DEL.
type Target struct {
	Node        string `json:"node"`
	Owner       string `json:"owner"`
	Network     string `json:"network"`
	ContainerID string `json:"container-id"`
	// State and Error are the outcome; empty before.
	State State  `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
}

type State string

const (
	WouldRelease State = "would-release" // a dry run
	Released     State = "released"      // the DEL has succeeded, whether or not an address was allocated
	Failed       State = "failed"        // the DEL has failed, or none can be called for the node
	NotTried     State = "not-tried"     // earlier failures, an interruption or Reclaim.Until prevented the DEL
)

// Targets returns the container IDs of owners on a node in networks, each also with the suffixes of up to so many
// generations.
func Targets(node string, owners, networks []string, generations int) []Target {
	var all []Target
	for _, network := range networks {
		for _, owner := range owners {
			first := containerid.For(owner, node, network)
			for g := range generations + 1 {
				all = append(all, Target{Node: node, Owner: owner, Network: network, ContainerID: containerid.Generation(first, g)})
			}
		}
	}
	return all
}

// outcome returns the nodes of which each ID was released, and the first error of each other one that has failed.
func (l List) outcome() (released []string, failed map[string]string) {
	failed = map[string]string{}
	left := map[string]bool{}
	for _, t := range l.Targets {
		left[t.Node] = left[t.Node] || t.State != Released
		if _, ok := failed[t.Node]; !ok && t.State == Failed {
			failed[t.Node] = t.Error
		}
	}
	for node, left := range left {
		if !left {
			released = append(released, node)
		}
	}
	return released, failed
}

// maxSize limits a file, in bytes: 20 nodes with 1,024 slots take 5 MB.
const maxSize = 64 << 20

// Read reads a file, strictly. The error names it.
func Read(file string) (l List, err error) {
	data, err := files.Read(file, maxSize)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&l)
	}
	if err != nil {
		return l, fmt.Errorf("%s: %w; expected a file in JSON as delegated-ipam-bridge lost-nodes and delegated-ipam reclaim --report write it", file, err)
	}
	return l, nil
}

func (l List) Write(file string) error {
	data, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		return err
	}
	return files.Replace(file, append(data, '\n'), 0o644)
}

// maxSpan limits the numbers of a span: no node has more pods.
const maxSpan = 65536

// span matches numbered owners: a prefix, the first number and the last.
var span = regexp.MustCompile(`^(.*?)(0|[1-9][0-9]*)\.\.(0|[1-9][0-9]*)$`)

// Expand returns owners: "ciliumnode-0..2" stands for ciliumnode-0, ciliumnode-1 and ciliumnode-2, and any
// other text for itself. The error names the text and the expectation.
func Expand(texts []string) (owners []string, err error) {
	for _, text := range texts {
		m := span.FindStringSubmatch(text)
		if m == nil {
			owners = append(owners, text)
			continue
		}
		first, errFirst := strconv.Atoi(m[2])
		last, errLast := strconv.Atoi(m[3])
		if errFirst != nil || errLast != nil || first > last || last-first >= maxSpan {
			return nil, fmt.Errorf("owner %q; expected PREFIX and FIRST..LAST, of which the first is not above the last, at most %d in all", text, maxSpan)
		}
		for n := first; n <= last; n++ {
			owners = append(owners, m[1]+strconv.Itoa(n))
		}
	}
	return owners, nil
}
