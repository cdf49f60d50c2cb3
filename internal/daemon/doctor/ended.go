package doctor

import (
	"strings"
	"time"
)

// checkEndedContainers checks that the addresses of containers that ended without a DEL are released.
func checkEndedContainers(o *Observations, r *report) {
	s := o.Status.EndedContainers
	since := ""
	if s.Oldest != nil {
		since = ", the first for " + time.Since(time.Time(*s.Oldest)).Round(time.Second).String()
	}
	switch {
	case s.Pending > 0 && s.DelaySeconds == 0:
		r.warn("set --missing-netns-release-delay, such as 10m; or see `delegated-ipam list`, and release those that do not run",
			"%d containers ended without a DEL%s, and keep their addresses", s.Pending, since)
	case s.Pending > 0:
		r.ok("%d containers ended without a DEL%s; they are released after %s", s.Pending, since, time.Duration(s.DelaySeconds)*time.Second)
	}
	if len(s.HiddenDirectories) > 0 && s.Runtime == "" {
		r.warn("mount the directory from the host with mountPropagation HostToContainer (hostPaths.netns), or run delegated-ipam-cri",
			"the network namespaces of containers in %s cannot be seen, so a container that ended without a DEL keeps its address", strings.Join(s.HiddenDirectories, ", "))
	}
}

// knowsEndedContainers reports whether there is something to know of containers that ended without a DEL.
func knowsEndedContainers(o *Observations) bool {
	if o.Status == nil || o.Status.EndedContainers == nil {
		return false
	}
	s := o.Status.EndedContainers
	return s.Pending > 0 || s.DelaySeconds > 0 && len(s.HiddenDirectories) > 0
}
