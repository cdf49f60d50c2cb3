package option

import (
	"os"
	"strings"
)

// Environment splits what os.Environ gives; of a name that comes twice the last
// counts.
func Environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}

// NodeName is the node's name as cilium-agent finds it (Cilium's pkg/node/types):
// $K8S_NODE_NAME, else the host name; empty if there is neither.
func NodeName(env map[string]string) string {
	if name := env["K8S_NODE_NAME"]; name != "" {
		return name
	}
	name, _ := os.Hostname()
	return name
}
