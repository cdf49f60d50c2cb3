package identity

import "regexp"

// form is what ContainerID and Generation make: the prefix, a slug unless that is
// empty, the hash, and a generation above 0.
var form = regexp.MustCompile(`^` + prefix + `(?:[a-z0-9][a-z0-9-]*-)?[0-9a-f]{16}(?:-g[1-9][0-9]*)?$`)

// HasForm tells whether a container ID looks like one of ContainerID or Generation,
// of whatever owner, node and network. Nobody else is expected to make such IDs,
// but nothing keeps them from it.
func HasForm(containerID string) bool { return form.MatchString(containerID) }
