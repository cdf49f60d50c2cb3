package contract

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// labels describe a generated request, by the part of the request. A part that is missing is as
// usual.
type labels map[string]string

// The parts of a request.
const (
	operation  = "operation"  // the operation, or what is requested in place of one
	ownerPart  = "owner"      // the owner in the query, and what it holds before
	ipPart     = "ip"         // the address in the path
	poolPart   = "pool"       // the pool in the query
	familyPart = "family"     // the family in the query
	expiration = "expiration" // the header of this name
	queryPart  = "query"      // the rest of the query
	methodPart = "method"     // the spelling of the method
	headerPart = "header"     // the size of the header
	bodyPart   = "body"       // the body and its type
	acceptPart = "accept"     // the header Accept
	callerPart = "caller"     // the user of the connection
	familiesOn = "families"   // the families of the node
)

// Addresses that no client holds.
const (
	freeIPv4 = "10.15.0.200"
	freeIPv6 = "fd00:15::200"
)

// request is a generated request.
type request struct {
	labels labels
	method string
	// target is the path with the query. {own4}, {own6}, {other4} and {other6} stand for addresses
	// that the owner and another owner hold.
	target string
	header []string
	body   string
	owner  string
}

// String describes the request for the message of a failure.
func (r request) String() string {
	return fmt.Sprintf("%s %.200s, header %.100q, body of %d bytes; %v", r.method, r.target, r.header, len(r.body), r.labels)
}

// raw returns the bytes of the request, with addresses in place of their names.
func (r request) raw(addresses map[string]string) string {
	target := r.target
	for name, ip := range addresses {
		target = strings.ReplaceAll(target, "{"+name+"}", ip)
	}
	header := append([]string{"Host: localhost", "Connection: close", fmt.Sprintf("Content-Length: %d", len(r.body))}, r.header...)
	return r.method + " " + target + " HTTP/1.1\r\n" + strings.Join(header, "\r\n") + "\r\n\r\n" + r.body
}

// generator makes requests. Its requests depend on its source alone.
type generator struct {
	*rand.Rand
	dualStack bool
	// root: requests of a user who may not call can be sent.
	root bool
}

// oneIn reports true for one request in n.
func (g generator) oneIn(n int) bool { return g.IntN(n) == 0 }

// pick returns a key of choices. The values are weights.
func (g generator) pick(choices map[string]int) string {
	sum := 0
	for _, w := range choices {
		sum += w
	}
	n := g.IntN(sum)
	for _, key := range sortedKeys(choices) {
		if n -= choices[key]; n < 0 {
			return key
		}
	}
	panic("unreachable: n is below the sum of the weights")
}

// request returns the request with a number, which makes its owner unique.
func (g generator) request(number int) request {
	r := request{labels: labels{familiesOn: ipv4}, owner: fmt.Sprintf("o-%d", number)}
	if g.dualStack {
		r.labels[familiesOn] = "both"
	}
	var query []string
	add := func(name, value string) { query = append(query, name+"="+value) }
	r.labels[operation] = g.pick(map[string]int{
		"allocate": 35, "restore": 30, "release": 25, "list": 2, "healthz": 2, "config": 2, "metrics": 1,
		"other operation": 2, "documentation": 1, "unknown path": 2, "other method": 3,
	})
	switch r.labels[operation] {
	case "allocate":
		r.method, r.target = "POST", "/v1/ipam"
		g.addOwner(&r, add)
		g.addFamily(&r, add)
		g.addPool(&r, add)
	case "restore":
		r.method, r.target = "POST", "/v1/ipam/"+g.address(&r)
		g.addOwner(&r, add)
		g.addPool(&r, add)
		if r.labels[ownerPart] == "none" {
			r.labels[ipPart] = strings.Replace(r.labels[ipPart], "the owner's", "another owner's", 1)
		}
	case "release":
		r.method, r.target = "DELETE", "/v1/ipam/"+g.address(&r)
		g.addPool(&r, add)
	default:
		r.method, r.target = g.elsewhere(r.labels[operation])
	}
	if g.oneIn(20) {
		r.labels[queryPart] = g.pick(map[string]int{"undecodable": 3, "unknown parameter": 1})
		query = append(query, map[string]string{"undecodable": "x=%zz", "unknown parameter": "colour=red"}[r.labels[queryPart]])
	}
	if len(query) > 0 {
		r.target += "?" + strings.Join(query, "&")
	}
	g.addRest(&r)
	return r
}

// elsewhere returns method and target of a request for something else than the addresses.
func (g generator) elsewhere(what string) (method, target string) {
	targets := map[string][]string{
		"list": {"/v1/ipam"}, "healthz": {"/v1/healthz"}, "config": {"/v1/config"}, "metrics": {"/metrics"},
		"other operation": {"/v1/endpoint", "/v1/policy", "/v1/cluster/nodes", "/v1/debuginfo"},
		"documentation":   {"/v1/swagger.json", "/v1/docs"},
		"unknown path":    {"/", "/v1", "/v2/ipam", "/v1/ipams", "/ipam", "/v1/ipam/10.15.0.2/etc", "/v1/%69pam/x/y"},
		"other method":    {"/v1/ipam", "/v1/ipam/10.15.0.9", "/v1/healthz", "/v1/config"},
	}[what]
	method = "GET"
	if what == "other method" {
		method = []string{"PUT", "HEAD", "OPTIONS", "BREW"}[g.IntN(4)]
	}
	return method, targets[g.IntN(len(targets))]
}

func (g generator) addOwner(r *request, add func(name, value string)) {
	r.labels[ownerPart] = g.pick(map[string]int{"new": 30, "holds addresses": 30, "none": 4, "over 512 bytes": 3, "control character": 3, "not admitted": 3})
	switch r.labels[ownerPart] {
	case "none":
		return
	case "over 512 bytes":
		add("owner", "o-"+strings.Repeat("x", 511))
	case "control character":
		add("owner", "o-%0A")
	case "not admitted":
		add("owner", "forbidden")
	default:
		add("owner", r.owner)
	}
}

func (g generator) addFamily(r *request, add func(name, value string)) {
	r.labels[familyPart] = g.pick(map[string]int{"none": 20, ipv4: 10, ipv6: 10, "IPv4": 1, "ipx": 1})
	if r.labels[familyPart] != "none" {
		add("family", r.labels[familyPart])
	}
}

func (g generator) addPool(r *request, add func(name, value string)) {
	r.labels[poolPart] = g.pick(map[string]int{"default": 20, "none": 4, "unknown": 3})
	if r.labels[poolPart] != "none" {
		add("pool", map[string]string{"default": "default", "unknown": "red"}[r.labels[poolPart]])
	}
}

// address returns the text in the path in place of {ip}.
func (g generator) address(r *request) string {
	texts := map[string]string{
		"free": freeIPv4, "the owner's": "{own4}", "another owner's": "{other4}", "an endpoint's": "{other4}",
		"outside the range": "10.99.0.9", "the router's": "10.15.0.1", "text": "banana", "with prefix length": freeIPv4 + "%2F24",
		"with zone": "fe80::1%25eth0", "0.0.0.0": "0.0.0.0", "::": "::", "multicast": "224.0.0.1", "IPv4 in IPv6": "::ffff:" + freeIPv4,
		"free IPv6": freeIPv6, "the owner's IPv6": "{own6}", "another owner's IPv6": "{other6}",
	}
	weights := map[string]int{
		"free": 12, "the owner's": 12, "another owner's": 8, "outside the range": 4, "the router's": 2, "text": 4, "with prefix length": 2,
		"with zone": 2, "0.0.0.0": 2, "::": 4, "multicast": 2, "IPv4 in IPv6": 4, "free IPv6": 8,
	}
	if r.labels[operation] == "release" {
		weights["an endpoint's"] = 4
		delete(weights, "another owner's")
	}
	if g.dualStack {
		weights["the owner's IPv6"] = 6
		if r.labels[operation] == "restore" {
			weights["another owner's IPv6"] = 4
		}
	}
	r.labels[ipPart] = g.pick(weights)
	return texts[r.labels[ipPart]]
}

// addRest adds what any request can have.
func (g generator) addRest(r *request) {
	if g.oneIn(4) {
		r.labels[expiration] = g.pick(map[string]int{"true": 4, "false": 1, "perhaps": 1})
		r.header = append(r.header, "expiration: "+r.labels[expiration])
	}
	if g.oneIn(10) {
		accept := map[string]string{"JSON": "application/json", "any": "*/*", "HTML": "text/html"}
		r.labels[acceptPart] = g.pick(map[string]int{"JSON": 1, "any": 1, "HTML": 1})
		r.header = append(r.header, "Accept: "+accept[r.labels[acceptPart]])
	}
	if g.oneIn(10) {
		r.labels[bodyPart] = g.pick(map[string]int{"JSON": 2, "text": 2, "large": 1})
		r.body = map[string]string{"JSON": "{}", "text": "x", "large": `"` + strings.Repeat("x", 70<<10) + `"`}[r.labels[bodyPart]]
		r.header = append(r.header, "Content-Type: "+map[string]string{"JSON": "application/json", "text": "text/plain", "large": "application/json"}[r.labels[bodyPart]])
	}
	if g.oneIn(25) {
		r.labels[methodPart] = "lower case"
		r.method = strings.ToLower(r.method)
	}
	// The server may close the connection before the client has sent a body.
	if g.oneIn(25) && r.body == "" {
		r.labels[headerPart] = g.pick(map[string]int{"over 8 KiB": 1, "over 100 lines": 1})
		if r.labels[headerPart] == "over 8 KiB" {
			r.header = append(r.header, "X-Padding: "+strings.Repeat("x", 8<<10))
		} else {
			for range 100 {
				r.header = append(r.header, "X-Line: x")
			}
		}
	}
	if g.oneIn(25) && g.root {
		r.labels[callerPart] = "refused"
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
