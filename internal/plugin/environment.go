package plugin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// maxProcs is set to 1 for a plugin unless --plugin-env names it. A call does one thing at a time
// and takes milliseconds; a Go runtime that prepares for every processor of the node takes a tenth
// of its processor time (docs/reference/performance.md).
const maxProcs = "GOMAXPROCS"

const (
	argPodName   = "K8S_POD_NAME="
	argSandboxID = "K8S_POD_INFRA_CONTAINER_ID="
)

// commonEnv returns the environment besides CNI_*: PATH and the named variables if they are set, and
// maxProcs. The CNI library's invoke.Args would pass on all of this process's environment.
func commonEnv(names []string, lookup func(string) (string, bool)) []string {
	var env []string
	all := append([]string{"PATH"}, names...)
	for i, name := range all {
		if slices.Contains(all[:i], name) {
			continue // named twice
		}
		if value, ok := lookup(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if !slices.Contains(all, maxProcs) {
		env = append(env, maxProcs+"=1")
	}
	return env
}

// cniEnv returns the CNI variables of a call. One without a value is left out.
func cniEnv(verb string, inv call.Invocation, args string) []string {
	var env []string
	for _, v := range [...][2]string{
		{"CNI_COMMAND", verb},
		{"CNI_CONTAINERID", inv.ContainerID},
		{"CNI_NETNS", inv.NetNS},
		{"CNI_IFNAME", inv.IfName},
		{"CNI_ARGS", args},
		{"CNI_PATH", inv.Path},
	} {
		if v[1] != "" {
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env
}

// invocationArgs returns CNI_ARGS of an invocation. IgnoreUnknown is always set, because a plugin
// built with the CNI library refuses keys that it does not know.
func invocationArgs(p profile.Profile, containerID, owner string) string {
	const base = "IgnoreUnknown=1"
	pod, ok := p.Pod(owner, containerID)
	if !ok {
		return base
	}
	return base + ";K8S_POD_NAMESPACE=" + pod.Namespace + ";" + argPodName + pod.Name
}

// CommandLine returns a shell command that makes a call by hand: the executable with the same CNI
// variables and the same standard input. Other variables (--plugin-env) come from the shell, so that no
// secret is printed. If the call cannot be made, it returns a comment with the reason.
func (r *Runner) CommandLine(verb string, c call.Call) string {
	in, err := r.prepareCurrent(verb, c.Invocation)
	if err != nil {
		return fmt.Sprintf("# %s of container ID %s cannot be run: %v", verb, c.ContainerID, err)
	}
	for i, v := range in.env {
		in.env[i] = shellQuote(v)
	}
	return fmt.Sprintf("printf %%s %s | env %s %s", shellQuote(string(in.stdin)), strings.Join(in.env, " "), shellQuote(in.binary))
}

// shellQuote returns text as one word of a POSIX shell.
func shellQuote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
