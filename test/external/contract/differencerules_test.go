package contract

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
<<<<<<< HEAD
)

// differenceRule decides which differences belong to a row.
type differenceRule struct {
	// part are the parts of the difference, separated by commas; empty for the code.
	part string
	// cilium and ours are the codes of the two responses, separated by " or ".
	cilium, ours string
=======
	"testing"
)

// knownDifference is a difference of the sidecar's answers to the agent's, and which requests show it.
type knownDifference struct {
	// name is the request or the part of the answer.
	name string
	// cilium and ours are the answers. For a difference of the code they begin with the code, or with "as"
	// for any.
	cilium, ours string
	// part are the parts of the difference, separated by commas; empty for the code.
	part string
>>>>>>> 3c69b555 (contract: keep the differences to the agent in Go)
	// labels of a request must have one of the values.
	labels map[string][]string
}

<<<<<<< HEAD
// anyCode is the code of a response that does not matter.
const anyCode = "any"

// differenceRules returns the differences to Cilium's responses, by the names of their rows in
// docs/reference/api.md.
func differenceRules() map[string]differenceRule {
	type values = map[string][]string
	posts, restore, release := []string{"allocate", "restore"}, []string{"restore"}, []string{"release"}
	off := []string{ipv4} // the families of a node without IPv6
	return map[string]differenceRule{
		"an owner that holds addresses allocates again":                             {"address.ipv4, address.ipv6, ipv4.ip, ipv6.ip", "", "", values{ownerPart: {"holds addresses"}}},
		"an owner that holds confirmed addresses allocates with `expiration: true`": {"ipv4.expiration-uuid, ipv6.expiration-uuid", "", "", values{ownerPart: {"holds addresses"}, expiration: {"true"}}},
		"`expiration-uuid` of two families":                                         {"ipv4.expiration-uuid, ipv6.expiration-uuid", "", "", values{ownerPart: {"new", "none"}, expiration: {"true"}, familiesOn: {"both"}}},
		"`address.ipv4-expiration-uuid`, `address.ipv6-expiration-uuid`":            {"address.ipv4-expiration-uuid, address.ipv6-expiration-uuid", "", "", values{expiration: {"true"}}},
		"`gateway`, `cidrs` of an allocation":                                       {"ipv4.gateway, ipv6.gateway, ipv4.cidrs, ipv6.cidrs", "", "", nil},

		"allocate in a `family` that is off": {"", "201 with a body", "502 with a text", values{familyPart: {ipv6}, familiesOn: off}},
		"allocate from an unknown pool":      {"", "201 with a body", "502 with a text", values{operation: {"allocate"}, poolPart: {"unknown"}}},
		"restore in an unknown pool":         {"", "200", "500 with a text", values{operation: restore, poolPart: {"unknown"}}},
		"release in an unknown pool":         {"", "200", "404 with a text", values{operation: release, poolPart: {"unknown"}}},
		"restore without a pool":             {"", "500 with a text", anyCode, values{operation: restore, poolPart: {"none"}}},
		"release without a pool":             {"", "500 with a text", anyCode, values{operation: release, poolPart: {"none"}}},

		"restore of something that is not a unicast address: text, prefix length, zone, `0.0.0.0`, `::`, multicast": {
			"", "500 with a text", "400 with a text", values{operation: restore, ipPart: {"text", "with prefix length", "with zone", "0.0.0.0", "::", "multicast"}},
		},
		"text of 400, release of text or of an address with prefix length":   {"text", "", "", values{operation: release, ipPart: {"text", "with prefix length"}}},
		"release of `0.0.0.0`, `::`, a multicast address or one with a zone": {"", "200 or 500 with a text", "400 with a text", values{operation: release, ipPart: {"with zone", "0.0.0.0", "::", "multicast"}}},
		"restore of an address in a family that is off":                      {"", "500 with a text", "501 with a text", values{operation: restore, ipPart: {"free IPv6"}, familiesOn: off}},
		"release of an address in a family that is off":                      {"", "500 with a text", "501 with a text", values{operation: release, ipPart: {"free IPv6"}, familiesOn: off}},
		"restore of an IPv4 address in IPv6 form (`::ffff:10.15.0.9`)":       {"", "500 with a text", anyCode, values{operation: restore, ipPart: {"IPv4 in IPv6"}}},
		"release of an IPv4 address in IPv6 form":                            {"", "200 or 500 with a text", anyCode, values{operation: release, ipPart: {"IPv4 in IPv6"}}},
		"restore of an address of another owner":                             {"", "500 with a text", "409 with a text", values{operation: restore, ipPart: {"another owner's", "another owner's IPv6"}}},
		"repeated restore by the same owner":                                 {"", "500 with a text", "200", values{operation: restore, ipPart: {"the owner's", "the owner's IPv6"}}},
		"restore of a second address in a family, or of a first one later":   {"", "200", "500 with a text", values{operation: restore, ownerPart: {"holds addresses"}, ipPart: {"free", "free IPv6"}}},
		"release of an address that is not allocated":                        {"", "200", "404 with a text", values{operation: release, ipPart: {"free", "free IPv6", "outside the range", "the router's"}}},
		"release of an address that an endpoint uses":                        {"", "500 with a text", "200 or 404 with a text", values{operation: release, ipPart: {"an endpoint's"}}},

		"owner over 512 bytes or with control characters": {"", anyCode, "422 with code and message", values{operation: posts, ownerPart: {"over 512 bytes", "control character"}}},
		"owner that `--owners` does not admit":            {"", anyCode, "403 with a text", values{operation: posts, ownerPart: {"not admitted"}}},
		refusedCaller:                                     {"", anyCode, "403 with a text", values{callerPart: {"refused"}}},
		"query that cannot be decoded":                    {"code, message", anyCode, "422 with code and message", values{queryPart: {"undecodable"}}},
		"method in lower case":                            {"", anyCode, "405 with code and message", values{methodPart: {"lower case"}}},
		"header over 8 KiB":                               {"", anyCode, "431 with a body", values{headerPart: {"over 8 KiB"}}},
		"header over 100 lines":                           {"", anyCode, "400 with a body", values{headerPart: {"over 100 lines"}}},
		"body over 64 KiB":                                {"", anyCode, "413 with a body", values{bodyPart: {"large"}}},
		"text of 500 and 502":                             {"text", "", "", values{operation: posts}},
		"`Retry-After` of 500 and 502":                    {"Retry-After", "", "", values{operation: posts}},
		"`X-Request-Id`":                                  {"X-Request-Id", "", "", nil},

		"`GET /v1/ipam`":                                 {"", "405 with code and message", "200 with a body or 406 with code and message or 415 with code and message", values{operation: {"list"}}},
		"`Allow` of 405 on `/v1/ipam`":                   {"Allow", "", "", values{operation: {"list", "other method", "allocate"}}},
		"body of `GET /v1/healthz` and `GET /v1/config`": {bodyDifference, "", "", values{operation: {"healthz", "config"}}},
		"`GET /metrics` on the socket":                   {"", "404 with code and message", "200 with a body", values{operation: {"metrics"}}},
		"`GET /v1/swagger.json`, `GET /v1/docs`":         {"", "200 with a body", "404 with code and message", values{operation: {"documentation"}}},
		"other operations of Cilium's API":               {"", anyCode, "404 with code and message", values{operation: {"other operation"}}},
=======
// knownDifferences returns every difference of the sidecar's answers to those of a cilium-agent v1.20.2 in
// ipam mode kubernetes. Besides, the agent has an expiration timer for each address, in memory; the sidecar
// has a durable deadline for each attachment.
func knownDifferences() []knownDifference {
	type values = map[string][]string
	posts, restore, release := []string{"allocate", "restore"}, []string{"restore"}, []string{"release"}
	off := []string{ipv4} // the families of a node without IPv6
	return []knownDifference{
		{"an owner that holds addresses allocates again", "another address", "the same address", "address.ipv4, address.ipv6, ipv4.ip, ipv6.ip", values{ownerPart: {"holds addresses"}}},
		{"an owner that holds confirmed addresses allocates with `expiration: true`", "`expiration-uuid`", "no `expiration-uuid`: the addresses stay confirmed", "ipv4.expiration-uuid, ipv6.expiration-uuid", values{ownerPart: {"holds addresses"}, expiration: {"true"}}},
		{"`expiration-uuid` of two families", "two", "the same one, because an attachment expires as a whole", "ipv4.expiration-uuid, ipv6.expiration-uuid", values{ownerPart: {"new", "none"}, expiration: {"true"}, familiesOn: {"both"}}},
		{"`address.ipv4-expiration-uuid`, `address.ipv6-expiration-uuid`", "absent", "the `expiration-uuid`", "address.ipv4-expiration-uuid, address.ipv6-expiration-uuid", values{expiration: {"true"}}},
		{"`gateway`, `cidrs` of an allocation", "absent, `null`", "those of the network", "ipv4.gateway, ipv6.gateway, ipv4.cidrs, ipv6.cidrs", nil},

		{"allocate in a `family` that is off", "201 with a body, without an address", "502 with a text", "", values{familyPart: {ipv6}, familiesOn: off}},
		{"allocate from an unknown pool", "201 with a body, the mode has one pool", "502 with a text", "", values{operation: {"allocate"}, poolPart: {"unknown"}}},
		{"restore in an unknown pool", "200, the mode has one pool", "500 with a text", "", values{operation: restore, poolPart: {"unknown"}}},
		{"release in an unknown pool", "200, the mode has one pool", "404 with a text", "", values{operation: release, poolPart: {"unknown"}}},
		{"restore without a pool", "500 with a text", "as with the default pool", "", values{operation: restore, poolPart: {"none"}}},
		{"release without a pool", "500 with a text", "as with the default pool", "", values{operation: release, poolPart: {"none"}}},

		{"restore of something that is not a unicast address: text, prefix length, zone, `0.0.0.0`, `::`, multicast", "500 with a text", "400 with a text", "", values{operation: restore, ipPart: {"text", "with prefix length", "with zone", "0.0.0.0", "::", "multicast"}}},
		{"text of 400, release of text or of an address with prefix length", "from the parser", "names what is expected", "text", values{operation: release, ipPart: {"text", "with prefix length"}}},
		{"release of `0.0.0.0`, `::`, a multicast address or one with a zone", "200 or 500 with a text", "400 with a text", "", values{operation: release, ipPart: {"with zone", "0.0.0.0", "::", "multicast"}}},
		{"restore of an address in a family that is off", "500 with a text", "501 with a text", "", values{operation: restore, ipPart: {"free IPv6"}, familiesOn: off}},
		{"release of an address in a family that is off", "500 with a text", "501 with a text", "", values{operation: release, ipPart: {"free IPv6"}, familiesOn: off}},
		{"restore of an IPv4 address in IPv6 form (`::ffff:10.15.0.9`)", "500 with a text", "as the IPv4 address", "", values{operation: restore, ipPart: {"IPv4 in IPv6"}}},
		{"release of an IPv4 address in IPv6 form", "200 or 500 with a text", "as the IPv4 address", "", values{operation: release, ipPart: {"IPv4 in IPv6"}}},
		{"restore of an address of another owner", "500 with a text", "409 with a text", "", values{operation: restore, ipPart: {"another owner's", "another owner's IPv6"}}},
		{"repeated restore by the same owner", "500 with a text", "200", "", values{operation: restore, ipPart: {"the owner's", "the owner's IPv6"}}},
		{"restore of a second address in a family, or of a first one later", "200", "500 with a text, because an owner has one attachment in a network", "", values{operation: restore, ownerPart: {"holds addresses"}, ipPart: {"free", "free IPv6"}}},
		{"release of an address that is not allocated", "200", "404 with a text", "", values{operation: release, ipPart: {"free", "free IPv6", "outside the range", "the router's"}}},
		{"release of an address that an endpoint uses", "500 with a text", "200 or 404 with a text, endpoints are not known here", "", values{operation: release, ipPart: {"an endpoint's"}}},

		{"owner over 512 bytes or with control characters", "as any owner", "422 with code and message", "", values{operation: posts, ownerPart: {"over 512 bytes", "control character"}}},
		{"owner that `--owners` does not admit", "as any owner", "403 with a text", "", values{operation: posts, ownerPart: {"not admitted"}}},
		{refusedCaller, "as any caller", "403 with a text", "", values{callerPart: {"refused"}}},
		{"query that cannot be decoded", "as without the parameter", "422 with code and message", "code, message", values{queryPart: {"undecodable"}}},
		{"method in lower case", "as in upper case", "405 with code and message", "", values{methodPart: {"lower case"}}},
		{"header over 8 KiB", "as usual", "431 with a body", "", values{headerPart: {"over 8 KiB"}}},
		{"header over 100 lines", "as usual", "400 with a body", "", values{headerPart: {"over 100 lines"}}},
		{"body over 64 KiB", "as usual", "413 with a body", "", values{bodyPart: {"large"}}},
		{"text of 500 and 502", "Cilium's", "the sidecar's", "text", values{operation: posts}},
		{"`Retry-After` of 500 and 502", "absent", "present", "Retry-After", values{operation: posts}},
		{"`X-Request-Id`", "absent", "present", "X-Request-Id", nil},

		{"`GET /v1/ipam`", "405 with code and message", "200 with a body or 406 with code and message or 415 with code and message", "", values{operation: {"list"}}},
		{"`Allow` of 405 on `/v1/ipam`", "without `GET`", "with `GET`", "Allow", values{operation: {"list", "other method", "allocate"}}},
		{"body of `GET /v1/healthz` and `GET /v1/config`", "state of the agent", "state of the sidecar", bodyDifference, values{operation: {"healthz", "config"}}},
		{"`GET /metrics` on the socket", "404 with code and message", "200 with a body", "", values{operation: {"metrics"}}},
		{"`GET /v1/swagger.json`, `GET /v1/docs`", "200 with a body", "404 with code and message", "", values{operation: {"documentation"}}},
		{"other operations of Cilium's API", "as Cilium's API says", "404 with code and message", "", values{operation: {"other operation"}}},
	}
}

func (d knownDifference) matches(r request, found difference) bool {
	if !slices.Contains(strings.Split(cmp.Or(d.part, "code"), ", "), found.part) {
		return false
	}
	head := strings.EqualFold(r.method, http.MethodHead)
	if found.part == "code" && !(allows(d.cilium, found.cilium, head) && allows(d.ours, found.ours, head)) {
		return false
	}
	for name, values := range d.labels {
		if !slices.Contains(values, r.labels[name]) {
			return false
		}
	}
	return true
}

// allows reports whether a column has a code, or is "as …" and has none. The response to a HEAD
// request has no body.
func allows(column, code string, head bool) bool {
	if strings.HasPrefix(column, "as ") {
		return true
	}
	codes, _, _ := strings.Cut(column, ",")
	return slices.ContainsFunc(strings.Split(codes, " or "), func(c string) bool {
		return c == code || head && strings.HasPrefix(c, code+" with ")
	})
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		column, code string
		want         bool
	}{
		{"404", "404", true},
		{"404", "404 with a text", false},
		{"404 with a text, because", "404 with a text", true},
		{"200 or 404", "404", true},
		{"200 or 404", "409", false},
		{"as any owner", "409", true},
		{"the same address", "409", false},
	} {
		if got := allows(c.column, c.code, false); got != c.want {
			t.Errorf("%q allows %q: %t; want %t", c.column, c.code, got, c.want)
		}
	}
	if !allows("431 with a body", "431", true) || allows("431 with a body", "43", true) {
		t.Error("the answer to HEAD has the code of the column, without a body")
>>>>>>> 3c69b555 (contract: keep the differences to the agent in Go)
	}
}

func (d differenceRule) matches(r request, found difference) bool {
	if !slices.Contains(strings.Split(cmp.Or(d.part, "code"), ", "), found.part) {
		return false
	}
	head := strings.EqualFold(r.method, http.MethodHead)
	if found.part == "code" && !(allows(d.cilium, found.cilium, head) && allows(d.ours, found.ours, head)) {
		return false
	}
	for name, values := range d.labels {
		if !slices.Contains(values, r.labels[name]) {
			return false
		}
	}
	return true
}

// allows reports whether a code is one of a rule. The response to a HEAD request has no body.
func allows(codes, code string, head bool) bool {
	return codes == anyCode || slices.ContainsFunc(strings.Split(codes, " or "), func(c string) bool {
		return c == code || head && strings.HasPrefix(c, code+" with ")
	})
}
