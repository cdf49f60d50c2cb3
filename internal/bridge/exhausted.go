package bridge

import "regexp"

// exhaustedText matches the error texts of plugins without a free address. CNI does not define a code
// for that. host-local: "no IP addresses available in range set: …"; whereabouts: "Could not allocate
// IP in range: …"; Calico: "… no more free addresses …", "IPAM allocated only 0". Only the reason in log,
// Event and metrics depends on it.
var exhaustedText = regexp.MustCompile(`(?i)exhausted|could not allocate ip in range|allocated only \d+|` +
	`\b(no|not enough|insufficient|out of)\b.{0,30}\b(ips?|address(es)?)\b`)

// isExhaustion reports whether the text of a plugin's error means that it has no free address.
func isExhaustion(text string) bool { return exhaustedText.MatchString(text) }

// pluginText matches the error of a plugin call (call.Error), or of its result. The plugin is not the
// cause of others, such as a full disk or a missing configuration.
var pluginText = regexp.MustCompile(`\bplugin \S+ ([A-Z]+|returned) `)

// isPluginError reports whether the plugin is the cause of a refusal.
func isPluginError(text string) bool { return pluginText.MatchString(text) }
