package benchbridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// auditPolicy makes the API server log each request of the bridges and of the operator, and no other.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    users: ["system:serviceaccount:` + bridgeAccount + `", "system:serviceaccount:` + operatorAccount + `"]
  - level: None
`

// request is a request in the audit log of the API server.
type request struct {
	ID    string `json:"auditID"`
	URI   string `json:"requestURI"`
	Verb  string `json:"verb"`
	Stage string `json:"stage"`
	// Ref is the object; watches and lists of one object have its name, too.
	Ref struct {
		Resource    string `json:"resource"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Status struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Answered time.Time `json:"stageTimestamp"`
}

// writes reports whether the request is to change an object.
func (r request) writes() bool {
	return (r.Verb == "patch" || r.Verb == "update") && !strings.Contains(r.URI, "dryRun=")
}

// publishes reports whether the request has changed the spec of a CiliumNode.
func (r request) publishes() bool {
	return r.writes() && r.Ref.Resource == "ciliumnodes" && r.Ref.Subresource == "" && r.Status.Code < 300
}

// about reports whether the object is a CiliumNode or a pod of one of the nodes: the field selector of
// a watch of pods has the name of the node.
func (r request) about(names map[string]bool) bool {
	if names[r.Ref.Name] {
		return true
	}
	_, selector, _ := strings.Cut(r.URI, "fieldSelector=")
	selector, _, _ = strings.Cut(selector, "&")
	for _, separator := range []string{"nodeName%3D", "name%3D"} {
		if _, name, found := strings.Cut(selector, separator); found {
			name, _, _ = strings.Cut(name, "%")
			return names[name]
		}
	}
	return false
}

// readAudit returns the requests that were received since a time, each once, in the order of their
// answers.
func readAudit(file string, since time.Time) ([]request, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []request
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, n, err)
		}
		// A watch has a line at its begin and another one at its end.
		if !r.Received.Before(since) && !seen[r.ID] {
			seen[r.ID] = true
			all = append(all, r)
		}
	}
	return all, lines.Err()
}

// counts are numbers of requests.
type counts struct {
	// writes are patches and updates that change an object, gets reads of one object.
	writes, gets int
	// all includes watches, lists and dry runs.
	all int
}

func countRequests(requests []request) counts {
	var c counts
	for _, r := range requests {
		c.all++
		switch {
		case r.writes():
			c.writes++
		case r.Verb == "get":
			c.gets++
		}
	}
	return c
}

// busiest returns the largest number of requests that were received within one second.
func busiest(requests []request) int {
	most := 0
	for _, first := range requests {
		n := 0
		for _, r := range requests {
			if d := r.Received.Sub(first.Received); d >= 0 && d < time.Second {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
