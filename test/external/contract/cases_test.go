package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const swaggerFile = "../../../swagger.yaml"

type params = map[string]string

// contractCase is one call and the documented answer that it gets.
type contractCase struct {
	name  string
	scene scene
	call  call
	code  int
}

// contractCases has at least one case for each documented code of each operation.
func contractCases() []contractCase {
	return slices.Concat(readCases(), allocateCases(), restoreCases(), releaseCases())
}

func readCases() []contractCase {
	return []contractCase{
		{"health of a sidecar that is ready", routerHolds, call{operation: "GET /healthz"}, 200},
		{"health in brief", routerHolds, call{operation: "GET /healthz", header: params{"brief": "true", "require-k8s-connectivity": "false"}}, 200},
		{"health without a configuration", noConfiguration, call{operation: "GET /healthz"}, 200},
		{"configuration of a dual-stack node", empty, call{operation: "GET /config"}, 200},
		{"configuration of an IPv4 node", ipv4Only, call{operation: "GET /config"}, 200},
		{"list of nothing", empty, call{operation: "GET /ipam"}, 200},
		{"list of one attachment", routerHolds, call{operation: "GET /ipam"}, 200},
		{"list of one that is not confirmed", routerExpires, call{operation: "GET /ipam"}, 200},
	}
}

func allocateCases() []contractCase {
	op := func(query params) call { return call{operation: "POST /ipam", query: query} }
	expiring := op(params{"owner": "router"})
	expiring.header = params{"expiration": "true"}
	return []contractCase{
		{"both families", empty, op(params{"owner": "router"}), 201},
		{"both families by name of the pool", empty, op(params{"owner": "router", "pool": "default"}), 201},
		{"one family", empty, op(params{"owner": "router", "family": "ipv6"}), 201},
		{"an IPv4 network", ipv4Only, op(params{"owner": "router"}), 201},
		{"without an owner", empty, op(nil), 201},
		{"with an expiration", empty, expiring, 201},
		{"a plugin that names the uplink and no gateway", uplink, op(params{"owner": "router"}), 201},
		{"an owner that is not admitted", onlyRouter, op(params{"owner": "ingress"}), 403},
		{"a caller that is not allowed", fromStranger, op(params{"owner": "router"}), 403},
		{"a plugin that refuses", refusing, op(params{"owner": "router"}), 502},
		{"no configuration", noConfiguration, op(params{"owner": "router"}), 502},
		{"an unknown pool", empty, op(params{"owner": "router", "pool": "red"}), 502},
		{"a family that is off", ipv4Only, op(params{"owner": "router", "family": "ipv6"}), 502},
	}
}

func restoreCases() []contractCase {
	op := func(ip, owner string) call {
		return call{operation: "POST /ipam/{ip}", path: params{"ip": ip}, query: params{"owner": owner}}
	}
	inRed := op("10.15.0.9", "router")
	inRed.query["pool"] = "red"
	return []contractCase{
		{"an address that is free", empty, op("10.15.0.9", "router"), 200},
		{"an IPv6 address that is free", empty, op("fd00:15::9", "router"), 200},
		{"the address that it holds", routerHolds, op("10.15.0.2", "router"), 200},
		{"no address", empty, op("banana", "router"), 400},
		{"an owner that is not admitted", onlyRouter, op("10.15.0.9", "ingress"), 403},
		{"an address of another owner", routerHolds, op("10.15.0.2", "ingress"), 409},
		{"another address than it holds", routerHolds, op("10.15.0.9", "router"), 500},
		{"an address outside the range", empty, op("10.99.0.9", "router"), 500},
		{"an unknown pool", empty, inRed, 500},
		{"a family that is off", ipv4Only, op("fd00:15::9", "router"), 501},
	}
}

func releaseCases() []contractCase {
	op := func(ip string) call { return call{operation: "DELETE /ipam/{ip}", path: params{"ip": ip}} }
	return []contractCase{
		{"an address that is held", routerHolds, op("10.15.0.2"), 200},
		{"no address", empty, op("banana"), 400},
		{"a caller that is not allowed", fromStranger, op("10.15.0.2"), 403},
		{"an address that nobody holds", empty, op("10.15.0.9"), 404},
		{"a plugin that cannot free it", stuck, op("10.15.0.2"), 500},
		{"a family that is off", ipv4Only, op("fd00:15::9"), 501},
	}
}

func TestEveryDocumentedCodeHasACase(t *testing.T) {
	covered := map[string]bool{}
	for _, c := range contractCases() {
		covered[fmt.Sprintf("%s %d", c.call.operation, c.code)] = true
	}
	codes := loadDocument(t, swaggerFile).codes()
	for _, code := range codes {
		if !covered[code] {
			t.Errorf("swagger.yaml documents %s, and no case shows it", code)
		}
		delete(covered, code)
	}
	for code := range covered {
		t.Errorf("a case expects %s, which swagger.yaml does not document", code)
	}
}

func TestTheSidecarAnswersAsDocumented(t *testing.T) {
	t.Parallel()
	d := loadDocument(t, swaggerFile)
	for _, c := range contractCases() {
		name := fmt.Sprintf("%s %d %s", c.call.operation, c.code, c.name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := d.validateCall(c.call); err != nil {
				t.Errorf("the request is not as documented: %v", err)
			}
			n, s := c.scene(t)
			a := d.send(t, s.Client, c.call)
			if a.Status != c.code {
				t.Fatalf("answered %s; want status %d", a, c.code)
			}
			if err := d.validateAnswer(c.call.operation, a); err != nil {
				t.Errorf("the answer %s is not as documented: %v", a, err)
			}
			if len(a.Body) > 0 {
				matchesGolden(t, n, fileName(name), a.Body)
			}
		})
	}
}

// fileName turns the name of a case into that of its golden file.
func fileName(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(" /{}", r) })
	return strings.ToLower(strings.Join(words, "-"))
}
