// Package containerid derives the container IDs (CNI_CONTAINERID) of an owner. They depend only
// on owner, node and network, so that a repeated request finds what the owner held even if the
// journal is lost (docs/design/how-it-works.md, Identity).
package containerid

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

const (
	prefix  = "cilium-agent-"
	maxSlug = 32
	hashLen = 16
	// maxLen is the maximum length of a DNS label.
	maxLen = 63
)

// pattern matches the IDs of this package: the prefix, the slug unless it is empty, the hash, and
// the suffix of Generation or Unique.
var pattern = regexp.MustCompile(`^` + prefix + `(?:[a-z0-9][a-z0-9-]*-)?([0-9a-f]{16})(?:-g[1-9][0-9]*|-u[0-9a-f]{12})?$`)

// For returns the container ID of an owner on a node in a network: cilium-agent-<slug>-<hash>. It
// has at most 62 bytes, is a DNS label and matches the pattern of the CNI spec (section 2,
// CNI_CONTAINERID).
func For(owner, node, network string) string {
	h := sha256.New()
	for _, part := range []string{node, network, owner} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	hash := hex.EncodeToString(h.Sum(nil))[:hashLen]
	if s := slug(owner); s != "" {
		return prefix + s + "-" + hash
	}
	return prefix + hash
}

// Generation returns the ID that an ADD uses while a DEL may still act on the IDs of earlier
// generations; generation 0 is the ID itself.
func Generation(containerID string, generation int) string {
	if generation == 0 {
		return containerID
	}
	return withSuffix(containerID, fmt.Sprintf("-g%d", generation))
}

// Unique returns an ID of the same attachment for a text that is used once, such as a UUID. A plugin whose DELs
// may act at any later time needs one for each ADD: not even a lost journal leads to an ID that such a DEL
// could release. It has 48 bits of the text's hash.
func Unique(containerID, text string) string {
	hash := sha256.Sum256([]byte(text))
	return withSuffix(containerID, "-u"+hex.EncodeToString(hash[:6]))
}

// Match reports whether a container ID has a form that For, Generation and Unique return, for any
// owner, node and network. No other client is expected to use such IDs, but it could.
func Match(containerID string) bool { return pattern.MatchString(containerID) }

// Same reports whether two container IDs are of the same owner, node and network.
func Same(a, b string) bool {
	ofA, ofB := pattern.FindStringSubmatch(a), pattern.FindStringSubmatch(b)
	return ofA != nil && ofB != nil && ofA[1] == ofB[1]
}

// MayBeWarm reports whether an ID may be that of a lease that was acquired ahead of containers ("warm/" and a text): one
// without a record may be in use by a container.
func MayBeWarm(containerID string) bool { return strings.HasPrefix(containerID, prefix+"warm-") }

// TryPrefix begins the IDs of `profile try`, so that leftovers of one that was killed are
// recognized in the plugin's store. Match does not match them.
const TryPrefix = "delegated-ipam-try-"

// withSuffix appends a suffix to an ID. The slug is shortened so that the result is a DNS label.
func withSuffix(containerID, suffix string) string {
	if over := len(containerID) + len(suffix) - maxLen; over > 0 {
		cut := len(containerID) - hashLen - 1
		containerID = strings.TrimRight(containerID[:cut-over], "-") + containerID[cut:]
	}
	return containerID + suffix
}

// slug returns the owner in lower case, with each run of other characters replaced by one "-", at
// most 32 bytes, without a "-" at either end.
func slug(owner string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(owner) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			dash = b.Len() > 0
			continue
		}
		if dash {
			b.WriteByte('-')
			dash = false
		}
		b.WriteRune(r)
	}
	s := b.String()
	if len(s) > maxSlug {
		s = s[:maxSlug]
	}
	return strings.Trim(s, "-")
}
