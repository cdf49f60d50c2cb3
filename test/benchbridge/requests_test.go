package benchbridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// auditPolicy makes the API server log each request of the bridges and of the operator, and the status updates of
// the agents, which are administrators.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    users: ["system:serviceaccount:` + bridgeAccount + `", "system:serviceaccount:` + operatorAccount + `"]
  - level: Metadata
    userGroups: ["system:masters"]
    verbs: [update]
    resources: [{group: cilium.io, resources: [ciliumnodes/status]}]
  - level: None
`

// request is a request in the audit log of the API server.
type request struct {
	ID   string `json:"auditID"`
	URI  string `json:"requestURI"`
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
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

// countRequests returns the patches and updates that change an object, and the reads of one object.
func countRequests(requests []request) (writes, gets int) {
	for _, r := range requests {
		switch {
		case r.writes():
			writes++
		case r.Verb == "get":
			gets++
		}
	}
	return writes, gets
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

// watchers are the watches of all CiliumNodes that the agents have, besides the watch of their own
// one.
type watchers struct{ lines, bytes atomic.Int64 }

func (w *watchers) received() (events, bytes int64) { return w.lines.Load(), w.bytes.Load() }

// watchAll starts watches of all CiliumNodes, which end with the test. They count events and do not
// decode them.
func (b *bench) watchAll(t *testing.T, count int) *watchers {
	w := &watchers{}
	for range count {
		// Without a resourceVersion the first events are the present objects.
		body, err := b.typed.CoreV1().RESTClient().Get().AbsPath("/apis/cilium.io/v2/ciliumnodes").
			Param("watch", "true").Param("resourceVersion", "0").SetHeader("Accept", "application/json").Stream(t.Context())
		check.Must(t, err)
		go func() {
			defer body.Close()
			buffer := make([]byte, 64<<10)
			for {
				n, err := body.Read(buffer)
				w.bytes.Add(int64(n))
				w.lines.Add(int64(bytes.Count(buffer[:n], []byte("\n")))) // an event is a line
				if err != nil {
					return // the test ends
				}
			}
		}()
	}
	// The first events are the present objects, which are not of the churn.
	check.Must(t, cluster.Sleep(t.Context(), 2*time.Second))
	return w
}
