package containerid

import "regexp"

// form is what ContainerID, Generation and Unique make: the prefix, a slug unless that is
// empty, the hash, and a generation above 0 or random digits.
var form = regexp.MustCompile(`^` + prefix + `(?:[a-z0-9][a-z0-9-]*-)?[0-9a-f]{16}(?:-g[1-9][0-9]*|-u[0-9a-f]{12})?$`)

// HasForm reports whether a container ID looks like one of ContainerID, Generation or
// Unique, of any owner, node and network. No other client is expected to make such IDs,
// but nothing prevents it.
func HasForm(containerID string) bool { return form.MatchString(containerID) }
