package plugin

import (
	"slices"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// maxProcs is set to 1 for a plugin unless --plugin-env names it. A call does one thing at a time
// and takes milliseconds; a Go runtime that prepares for every processor of the node takes a tenth
// of its processor time (docs/reference/performance.md).
const maxProcs = "GOMAXPROCS"

// argPodName is the key of CNI_ARGS for the name of a pod.
const argPodName = "K8S_POD_NAME="

// environment is the complete environment of a plugin. The CNI library's invoke.Args would pass on
// all of this process's environment.
type environment struct {
	common []string
	verb   string
	id     string
	netns  string
	ifName string
	args   string
	path   string
}

// list returns the environment as execve(2) takes it. A CNI variable without a value is left out.
func (e environment) list() []string {
	env := append(make([]string, 0, len(e.common)+6), e.common...)
	for _, v := range [...][2]string{
		{"CNI_COMMAND", e.verb},
		{"CNI_CONTAINERID", e.id},
		{"CNI_NETNS", e.netns},
		{"CNI_IFNAME", e.ifName},
		{"CNI_ARGS", e.args},
		{"CNI_PATH", e.path},
	} {
		if v[1] != "" {
			env = append(env, v[0]+"="+v[1])
		}
	}
	return env
}

// commonEnv returns the environment besides CNI_*: PATH and the named variables as far as they
// are set, and maxProcs.
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

// environment returns the environment of the call.
func (x *execution) environment(c call.Call, args string) environment {
	return environment{
		common: x.runner.env,
		verb:   x.verb,
		id:     c.ContainerID,
		netns:  c.Invocation.NetNS,
		ifName: c.Invocation.IfName,
		args:   args,
		path:   c.Invocation.Path,
	}
}
