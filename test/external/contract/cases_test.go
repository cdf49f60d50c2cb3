// Package contract tests the daemon through its socket: against swagger.yaml, with Cilium's
// client, and with the curl lines of the documentation.
package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const swaggerFile = "../../../swagger.yaml"

type params = map[string]string

// contractCase is a call and its documented response.
type contractCase struct {
	name  string
	start startFunc
	call  call
	code  int
}

// contractCases returns at least one case for each documented code of each operation.
func contractCases() []contractCase {
	get := func(path string) call { return call{operation: "GET " + path} }
	brief := get("/healthz")
	brief.header = params{"brief": "true", "require-k8s-connectivity": "false"}
	allocate := func(query params) call { return call{operation: "POST /ipam", query: query} }
	expiring := allocate(params{"owner": "router"})
	expiring.header = params{"expiration": "true"}
	restore := func(ip, owner string) call {
		return call{operation: "POST /ipam/{ip}", path: params{"ip": ip}, query: params{"owner": owner}}
	}
	inRed := restore("10.15.0.9", "router")
	inRed.query["pool"] = "red"
	release := func(ip string) call { return call{operation: "DELETE /ipam/{ip}", path: params{"ip": ip}} }
	return append(containerCases(), []contractCase{
		{"ready", routerHolds, get("/healthz"), 200},
		{"brief", routerHolds, brief, 200},
		{"no configuration", noConfiguration, get("/healthz"), 200},
		{"dual-stack", empty, get("/config"), 200},
		{"IPv4 only", ipv4Only, get("/config"), 200},
		{"empty", empty, get("/ipam"), 200},
		{"one attachment", routerHolds, get("/ipam"), 200},
		{"expiring attachment", routerExpires, get("/ipam"), 200},

		{"both families", empty, allocate(params{"owner": "router"}), 201},
		{"named pool", empty, allocate(params{"owner": "router", "pool": "default"}), 201},
		{"one family", empty, allocate(params{"owner": "router", "family": "ipv6"}), 201},
		{"IPv4 network", ipv4Only, allocate(params{"owner": "router"}), 201},
		{"no owner", empty, allocate(nil), 201},
		{"expiration", empty, expiring, 201},
		{"uplink, no gateway", uplink, allocate(params{"owner": "router"}), 201},
		{"owner not allowed", onlyRouter, allocate(params{"owner": "ingress"}), 403},
		{"caller not allowed", fromOtherUser, allocate(params{"owner": "router"}), 403},
		{"plugin error", addFails, allocate(params{"owner": "router"}), 502},
		{"no configuration", noConfiguration, allocate(params{"owner": "router"}), 502},
		{"unknown pool", empty, allocate(params{"owner": "router", "pool": "red"}), 502},
		{"family disabled", ipv4Only, allocate(params{"owner": "router", "family": "ipv6"}), 502},

		{"free address", empty, restore("10.15.0.9", "router"), 200},
		{"free IPv6 address", empty, restore("fd00:15::9", "router"), 200},
		{"held address", routerHolds, restore("10.15.0.2", "router"), 200},
		{"invalid address", empty, restore("banana", "router"), 400},
		{"owner not allowed", onlyRouter, restore("10.15.0.9", "ingress"), 403},
		{"address of another owner", routerHolds, restore("10.15.0.2", "ingress"), 409},
		{"second address", routerHolds, restore("10.15.0.9", "router"), 500},
		{"address outside the range", empty, restore("10.99.0.9", "router"), 500},
		{"unknown pool", empty, inRed, 500},
		{"family disabled", ipv4Only, restore("fd00:15::9", "router"), 501},

		{"held address", routerHolds, release("10.15.0.2"), 200},
		{"invalid address", empty, release("banana"), 400},
		{"caller not allowed", fromOtherUser, release("10.15.0.2"), 403},
		{"free address", empty, release("10.15.0.9"), 404},
		{"DEL fails", delFails, release("10.15.0.2"), 500},
		{"family disabled", ipv4Only, release("fd00:15::9"), 501},
	}...)
}

// aContainer is the request for a container interface, inOther the same in another network.
const (
	aContainer = `{"network":"pods","container-id":"0a1b","ifname":"eth0","netns":"/var/run/netns/0a1b","args":"IgnoreUnknown=1",
		"cni-args":{"cni":{}},"runtime-config":{"ips":[]}}`
	inOther = `{"network":"others","container-id":"0a1b","ifname":"eth0"}`
)

func containerCases() []contractCase {
	var all []contractCase
	for _, operation := range []string{"POST /cni/add", "POST /cni/del", "POST /cni/check"} {
		op := func(body string) call { return call{operation: operation, body: body} }
		all = append(all, []contractCase{
			{"container", containerHolds, op(aContainer), 200},
			{"invalid interface", containers, op(`{"network":"pods","container-id":"0a1b","ifname":".."}`), 400},
			{"caller not allowed", containersFromOtherUser, op(aContainer), 403},
			{"another network", containers, op(inOther), 404},
			{"plugin error", containersFail, op(aContainer), 502},
		}...)
	}
	gc := func(network, ifName string) call {
		return call{operation: "POST /cni/gc", body: fmt.Sprintf(`{"network":%q,"valid-attachments":[{"container-id":"0a1b","ifname":%q}]}`, network, ifName)}
	}
	sandboxes := func(list string) call {
		return call{operation: "POST /cni/sandboxes", body: `{"runtime":"containerd v2.4.2","sandboxes":` + list + `}`}
	}
	return append(all, []contractCase{
		{"sandboxes", containers, sandboxes(`["0a1b"]`), 200},
		{"no sandbox", containers, sandboxes(`[]`), 400},
		{"caller not allowed", containersFromOtherUser, sandboxes(`["0a1b"]`), 403},
		{"container", containers, gc("pods", "eth0"), 200},
		{"invalid interface", containers, gc("pods", ".."), 400},
		{"caller not allowed", containersFromOtherUser, gc("pods", "eth0"), 403},
		{"another network", containers, gc("others", "eth0"), 404},
		{"no configuration", noConfiguration, gc("pods", "eth0"), 502},
	}...)
}

func TestCodesCovered(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range contractCases() {
		covered[fmt.Sprintf("%s %d", c.call.operation, c.code)] = true
	}
	codes := loadSwagger(t, swaggerFile).codes()
	for _, code := range codes {
		if !covered[code] {
			t.Errorf("no case for %s of swagger.yaml", code)
		}
		delete(covered, code)
	}
	for code := range covered {
		t.Errorf("a case has %s, which is not in swagger.yaml", code)
	}
}

func TestResponses(t *testing.T) {
	t.Parallel()
	d := loadSwagger(t, swaggerFile)
	for _, c := range contractCases() {
		name := fmt.Sprintf("%s %d %s", c.call.operation, c.code, c.name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := d.validateCall(c.call); err != nil {
				t.Errorf("undocumented request: %v", err)
			}
			n, s := c.start(t)
			a := d.send(t, s.Client, c.call)
			if a.Status != c.code {
				t.Fatalf("got %s; want status %d", a, c.code)
			}
			if err := d.validateResponse(c.call.operation, a); err != nil {
				t.Errorf("undocumented response %s: %v", a, err)
			}
			if len(a.Body) > 0 {
				compareGolden(t, fileName(name)+".json", normalize(t, n, a.Body))
			} else if c.code >= 400 {
				t.Errorf("got %s; want a reason", a)
			}
		})
	}
}

// fileName returns the name of the golden file of a case.
func fileName(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(" ,/{}", r) })
	return strings.ToLower(strings.Join(words, "-"))
}

// goldenEnv, if set, causes the golden files to be written before they are compared.
const goldenEnv = "UPDATE_GOLDEN"

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	// options matches the options of serve, whose defaults depend on the machine.
	options = regexp.MustCompile(`(?s)(\n +"options": \[).*?\n +\]`)
	hashes  = regexp.MustCompile(`(cilium-agent-[a-z0-9-]*)[0-9a-f]{16}\b`)
	inodes  = regexp.MustCompile(`device \d+:\d+, inode \d+`)
)

// compareGolden compares a text with a file of testdata.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv(goldenEnv) != "" {
		check.Must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; create it with %s=1 go test ./...", err, goldenEnv)
	}
	if got != string(want) {
		t.Errorf("not the content of %s; got:\n%s\nwant:\n%s", file, got, want)
	}
}

// normalize indents a body and replaces values that differ between runs with names.
func normalize(t *testing.T, n *harness.Node, body []byte) string {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "", "  "); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	s := replaceNode(n, strings.TrimSpace(indented.String())+"\n")
	s = options.ReplaceAllString(s, `${1} "OPTIONS" ]`)
	s = uuids.ReplaceAllString(s, "UUID")
	s = hashes.ReplaceAllString(s, "${1}HASH")
	s = inodes.ReplaceAllString(s, "DEVICE AND INODE")
	return times.ReplaceAllString(s, "TIME")
}

// replaceNode replaces the name and the directory of a node.
func replaceNode(n *harness.Node, s string) string {
	return strings.NewReplacer(n.Dir, "DIR", n.Name, "NODE").Replace(s)
}
