package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const swaggerFile = "../../../swagger.yaml"

type params = map[string]string

// contractCase is a call and its documented response.
type contractCase struct {
	name  string
	start startFunc
	call  call
	code  int
}

// contractCases has at least one case for each documented code of each operation.
func contractCases() []contractCase {
	return slices.Concat(readCases(), allocateCases(), restoreCases(), releaseCases(), discardCases(), containerCases())
}

func readCases() []contractCase {
	return []contractCase{
		{"ready", routerHolds, call{operation: "GET /healthz"}, 200},
		{"brief", routerHolds, call{operation: "GET /healthz", header: params{"brief": "true", "require-k8s-connectivity": "false"}}, 200},
		{"no configuration", noConfiguration, call{operation: "GET /healthz"}, 200},
		{"dual-stack", empty, call{operation: "GET /config"}, 200},
		{"IPv4 only", ipv4Only, call{operation: "GET /config"}, 200},
		{"empty", empty, call{operation: "GET /ipam"}, 200},
		{"one attachment", routerHolds, call{operation: "GET /ipam"}, 200},
		{"expiring attachment", routerExpires, call{operation: "GET /ipam"}, 200},
	}
}

func allocateCases() []contractCase {
	op := func(query params) call { return call{operation: "POST /ipam", query: query} }
	expiring := op(params{"owner": "router"})
	expiring.header = params{"expiration": "true"}
	return []contractCase{
		{"both families", empty, op(params{"owner": "router"}), 201},
		{"named pool", empty, op(params{"owner": "router", "pool": "default"}), 201},
		{"one family", empty, op(params{"owner": "router", "family": "ipv6"}), 201},
		{"IPv4 network", ipv4Only, op(params{"owner": "router"}), 201},
		{"no owner", empty, op(nil), 201},
		{"expiration", empty, expiring, 201},
		{"uplink, no gateway", uplink, op(params{"owner": "router"}), 201},
		{"owner not allowed", onlyRouter, op(params{"owner": "ingress"}), 403},
		{"caller not allowed", fromOtherUser, op(params{"owner": "router"}), 403},
		{"plugin error", addFails, op(params{"owner": "router"}), 502},
		{"no configuration", noConfiguration, op(params{"owner": "router"}), 502},
		{"unknown pool", empty, op(params{"owner": "router", "pool": "red"}), 502},
		{"family disabled", ipv4Only, op(params{"owner": "router", "family": "ipv6"}), 502},
	}
}

func restoreCases() []contractCase {
	op := func(ip, owner string) call {
		return call{operation: "POST /ipam/{ip}", path: params{"ip": ip}, query: params{"owner": owner}}
	}
	inRed := op("10.15.0.9", "router")
	inRed.query["pool"] = "red"
	return []contractCase{
		{"free address", empty, op("10.15.0.9", "router"), 200},
		{"free IPv6 address", empty, op("fd00:15::9", "router"), 200},
		{"held address", routerHolds, op("10.15.0.2", "router"), 200},
		{"invalid address", empty, op("banana", "router"), 400},
		{"owner not allowed", onlyRouter, op("10.15.0.9", "ingress"), 403},
		{"address of another owner", routerHolds, op("10.15.0.2", "ingress"), 409},
		{"second address", routerHolds, op("10.15.0.9", "router"), 500},
		{"address outside the range", empty, op("10.99.0.9", "router"), 500},
		{"unknown pool", empty, inRed, 500},
		{"family disabled", ipv4Only, op("fd00:15::9", "router"), 501},
	}
}

func releaseCases() []contractCase {
	op := func(ip string) call { return call{operation: "DELETE /ipam/{ip}", path: params{"ip": ip}} }
	return []contractCase{
		{"held address", routerHolds, op("10.15.0.2"), 200},
		{"invalid address", empty, op("banana"), 400},
		{"caller not allowed", fromOtherUser, op("10.15.0.2"), 403},
		{"free address", empty, op("10.15.0.9"), 404},
		{"DEL fails", delFails, op("10.15.0.2"), 500},
		{"family disabled", ipv4Only, op("fd00:15::9"), 501},
	}
}

func discardCases() []contractCase {
	op := func(owner string) call { return call{operation: "DELETE /ipam", query: params{"owner": owner}} }
	return []contractCase{
		{"released", routerToDiscard, op("router"), 200},
		{"discarded", delFails, op("router"), 200},
		{"caller not allowed", fromOtherUser, op("router"), 403},
		{"no attachment", routerHolds, op("ingress"), 404},
		{"state directory moved", stateMoved, op("router"), 500},
	}
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
	return append(all, []contractCase{
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
				compareBody(t, n, fileName(name), a.Body)
			}
			if c.code >= 400 && len(a.Body) == 0 {
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
