package benchbridge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// TestAudit checks the values that are read from lines of an audit log.
func TestAudit(t *testing.T) {
	const lines = `
{"auditID":"1","stage":"ResponseComplete","requestURI":"/apis/cilium.io/v2/ciliumnodes/a","verb":"patch","objectRef":{"resource":"ciliumnodes","name":"a"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z","stageTimestamp":"2026-01-01T00:00:01.010000Z"}
{"auditID":"2","stage":"ResponseComplete","requestURI":"/apis/cilium.io/v2/ciliumnodes/a?dryRun=All","verb":"patch","objectRef":{"resource":"ciliumnodes","name":"a"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:01.500000Z"}
{"auditID":"3","stage":"ResponseComplete","requestURI":"/apis/cilium.io/v2/ciliumnodes/a/status","verb":"patch","objectRef":{"resource":"ciliumnodes","subresource":"status","name":"a"},"responseStatus":{"code":409},"requestReceivedTimestamp":"2026-01-01T00:00:01.900000Z"}
{"auditID":"4","stage":"ResponseComplete","requestURI":"/apis/cilium.io/v2/ciliumnodes/b","verb":"get","objectRef":{"resource":"ciliumnodes","name":"b"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:03.000000Z"}
{"auditID":"5","stage":"ResponseStarted","requestURI":"/api/v1/pods?fieldSelector=spec.nodeName%3Da&watch=true","verb":"watch","objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:04.000000Z"}
{"auditID":"5","stage":"ResponseComplete","requestURI":"/api/v1/pods?fieldSelector=spec.nodeName%3Da&watch=true","verb":"watch","objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:04.000000Z"}
`
	file := filepath.Join(t.TempDir(), "audit.log")
	check.Must(t, os.WriteFile(file, []byte(strings.TrimLeft(lines, "\n")), 0o600))
	all, err := readAudit(file, time.Time{})
	check.Must(t, err)
	writes, gets := countRequests(all)
	check.Equal(t, "writes, gets, requests and those of the busiest second", [4]int{writes, gets, len(all), busiest(all)}, [4]int{2, 1, 5, 3})
	var about, publishing []string
	for _, r := range all {
		if r.about(map[string]bool{"a": true}) {
			about = append(about, r.ID)
		}
		if r.publishes() {
			publishing = append(publishing, r.ID)
		}
	}
	check.Equal(t, "requests about node a", about, []string{"1", "2", "3", "5"})
	check.Equal(t, "requests that publish", publishing, []string{"1"})
	later, err := readAudit(file, all[3].Received)
	check.Must(t, err)
	check.Equal(t, "requests since the fourth", later, all[3:])
}

// TestAgent checks the answers of the imitated agent (docs/design/bridge.md, Behaviour of the agent).
func TestAgent(t *testing.T) {
	a := &agent{refresh: make(chan struct{}, 1), allocated: map[string]any{"10.0.0.1": nil}}
	a.observe(&unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"ipam": map[string]any{"pool": map[string]any{
			"10.0.0.1": map[string]any{}, "10.0.0.2": map[string]any{}, "10.0.0.3": map[string]any{"owner": "suspended"},
			"10.0.0.4": map[string]any{"resource": "slot"}, "10.0.0.5": map[string]any{},
		}}},
		"status": map[string]any{"ipam": map[string]any{"release-ips": map[string]any{
			"10.0.0.1": "marked-for-release", "10.0.0.2": "marked-for-release", "0.0.0.0": "marked-for-release",
			"10.0.0.9": "released", "10.0.0.5": "ready-for-release",
		}}},
	}})
	want := map[string]any{"10.0.0.1": "do-not-release", "10.0.0.2": "ready-for-release", "0.0.0.0": "do-not-release", "10.0.0.5": "ready-for-release"}
	check.Equal(t, "answers", a.release(), want)
	check.Equal(t, "status updates that the answers trigger", len(a.refresh), 1)
	o := a.last()
	check.Equal(t, "addresses in the pool, free, suspended", [3]int{o.pool, o.free, o.suspended}, [3]int{5, 1, 1})
	ip, err := a.allocate("pod")
	check.Must(t, err)
	check.Equal(t, "the only free address", ip, "10.0.0.4")
	if _, err := a.allocate("pod"); err == nil {
		t.Error("allocated an address that is suspended, used or in release; want an error")
	}
}
