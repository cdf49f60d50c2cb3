package contract

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// differenceRule decides which differences are expected.
type differenceRule struct {
	// part are the parts of the difference, separated by commas; empty for the code.
	part string
	// cilium and ours are the codes of the two responses, separated by " or ".
	cilium, ours string
	// labels of a request must have one of the values.
	labels map[string][]string
}

// anyCode is the code of a response that does not matter.
const anyCode = "any"

// differenceRules returns the differences to Cilium's responses by a name. Besides, the agent has an
// expiration timer for each address, in memory; the daemon has a durable deadline for each attachment.
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

		"owner over 512 bytes or with control characters": {"", anyCode, "422 with a text", values{operation: posts, ownerPart: {"over 512 bytes", "control character"}}},
		"owner that `--owners` does not admit":            {"", anyCode, "403 with a text", values{operation: posts, ownerPart: {"not admitted"}}},
		refusedCaller:                                     {"", anyCode, "403 with a text", values{callerPart: {"refused"}}},
		"query that cannot be decoded":                    {"code, text", anyCode, "422 with a text", values{queryPart: {"undecodable"}}},
		"method in lower case":                            {"", anyCode, "405 with a text", values{methodPart: {"lower case"}}},
		"header over 8 KiB":                               {"", anyCode, "431 with a body", values{headerPart: {"over 8 KiB"}}},
		"header over 100 lines":                           {"", anyCode, "400 with a body", values{headerPart: {"over 100 lines"}}},
		"body over 64 KiB":                                {"", anyCode, "413 with a text", values{bodyPart: {"large"}}},
		"form of errors besides those of an operation":    {"form", "", "", nil},
		"text of 500 and 502":                             {"text", "", "", values{operation: posts}},
		"`Retry-After` of 500 and 502":                    {"Retry-After", "", "", values{operation: posts}},
		"`X-Request-Id`":                                  {"X-Request-Id", "", "", nil},

		"`GET /v1/ipam`":                                 {"", "405 with a text", "200 with a body or 406 with a text or 415 with a text", values{operation: {"list"}}},
		"`Allow` of 405 on `/v1/ipam`":                   {"Allow", "", "", values{operation: {"list", "other method", "allocate"}}},
		"body of `GET /v1/healthz` and `GET /v1/config`": {"body", "", "", values{operation: {"healthz", "config"}}},
		"`GET /metrics` on the socket":                   {"", "404 with a text", "200 with a body", values{operation: {"metrics"}}},
		"`GET /v1/swagger.json`, `GET /v1/docs`":         {"", "200 with a body", "404 with a text", values{operation: {"documentation"}}},
		"other operations of Cilium's API":               {"", anyCode, "404 with a text", values{operation: {"other operation"}}},
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
