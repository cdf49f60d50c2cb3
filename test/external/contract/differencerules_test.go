package contract

// differenceRules returns which differences belong to each row of the table in docs/reference/api.md.
func differenceRules() map[string]differenceRule {
	type values = map[string][]string
	posts, restore, release := []string{"allocate", "restore"}, []string{"restore"}, []string{"release"}
	off := []string{ipv4} // the families of a node without IPv6
	return map[string]differenceRule{
		"an owner that holds addresses allocates again":                             {"address.ipv4, address.ipv6, ipv4.ip, ipv6.ip", values{ownerPart: {"holds addresses"}}},
		"an owner that holds confirmed addresses allocates with `expiration: true`": {"ipv4.expiration-uuid, ipv6.expiration-uuid", values{ownerPart: {"holds addresses"}, expiration: {"true"}}},
		"`expiration-uuid` of two families":                                         {"ipv4.expiration-uuid, ipv6.expiration-uuid", values{ownerPart: {"new", "none"}, expiration: {"true"}, familiesOn: {"both"}}},
		"`address.ipv4-expiration-uuid`, `address.ipv6-expiration-uuid`":            {"address.ipv4-expiration-uuid, address.ipv6-expiration-uuid", values{expiration: {"true"}}},
		"`gateway`, `cidrs` of an allocation":                                       {"ipv4.gateway, ipv6.gateway, ipv4.cidrs, ipv6.cidrs", nil},

		"allocate in a `family` that is off": {"", values{familyPart: {ipv6}, familiesOn: off}},
		"allocate from an unknown pool":      {"", values{operation: {"allocate"}, poolPart: {"unknown"}}},
		"restore in an unknown pool":         {"", values{operation: restore, poolPart: {"unknown"}}},
		"release in an unknown pool":         {"", values{operation: release, poolPart: {"unknown"}}},
		"restore without a pool":             {"", values{operation: restore, poolPart: {"none"}}},
		"release without a pool":             {"", values{operation: release, poolPart: {"none"}}},

		"restore of something that is not a unicast address: text, prefix length, zone, `0.0.0.0`, `::`, multicast": {
			"", values{operation: restore, ipPart: {"text", "with prefix length", "with zone", "0.0.0.0", "::", "multicast"}},
		},
		"text of 400, release of text or of an address with prefix length":   {"text", values{operation: release, ipPart: {"text", "with prefix length"}}},
		"release of `0.0.0.0`, `::`, a multicast address or one with a zone": {"", values{operation: release, ipPart: {"with zone", "0.0.0.0", "::", "multicast"}}},
		"restore of an address in a family that is off":                      {"", values{operation: restore, ipPart: {"free IPv6"}, familiesOn: off}},
		"release of an address in a family that is off":                      {"", values{operation: release, ipPart: {"free IPv6"}, familiesOn: off}},
		"restore of an IPv4 address in IPv6 form (`::ffff:10.15.0.9`)":       {"", values{operation: restore, ipPart: {"IPv4 in IPv6"}}},
		"release of an IPv4 address in IPv6 form":                            {"", values{operation: release, ipPart: {"IPv4 in IPv6"}}},
		"restore of an address of another owner":                             {"", values{operation: restore, ipPart: {"another owner's", "another owner's IPv6"}}},
		"repeated restore by the same owner":                                 {"", values{operation: restore, ipPart: {"the owner's", "the owner's IPv6"}}},
		"restore of a second address in a family, or of a first one later":   {"", values{operation: restore, ownerPart: {"holds addresses"}, ipPart: {"free", "free IPv6"}}},
		"release of an address that is not allocated":                        {"", values{operation: release, ipPart: {"free", "free IPv6", "outside the range", "the router's"}}},
		"release of an address that an endpoint uses":                        {"", values{operation: release, ipPart: {"an endpoint's"}}},

		"owner over 512 bytes or with control characters": {"", values{operation: posts, ownerPart: {"over 512 bytes", "control character"}}},
		"owner that `--owners` does not admit":            {"", values{operation: posts, ownerPart: {"not admitted"}}},
		refusedCaller:                                     {"", values{callerPart: {"refused"}}},
		"query that cannot be decoded":                    {"code, message", values{queryPart: {"undecodable"}}},
		"method in lower case":                            {"", values{methodPart: {"lower case"}}},
		"header over 8 KiB":                               {"", values{headerPart: {"over 8 KiB"}}},
		"header over 100 lines":                           {"", values{headerPart: {"over 100 lines"}}},
		"body over 64 KiB":                                {"", values{bodyPart: {"large"}}},
		"text of 500 and 502":                             {"text", values{operation: posts}},
		"`Retry-After` of 500 and 502":                    {"Retry-After", values{operation: posts}},
		"`X-Request-Id`":                                  {"X-Request-Id", nil},

		"`GET /v1/ipam`":                                 {"", values{operation: {"list"}}},
		"`Allow` of 405 on `/v1/ipam`":                   {"Allow", values{operation: {"list", "other method", "allocate"}}},
		"body of `GET /v1/healthz` and `GET /v1/config`": {bodyDifference, values{operation: {"healthz", "config"}}},
		"`GET /metrics` on the socket":                   {"", values{operation: {"metrics"}}},
		"`GET /v1/swagger.json`, `GET /v1/docs`":         {"", values{operation: {"documentation"}}},
		"other operations of Cilium's API":               {"", values{operation: {"other operation"}}},
	}
}
