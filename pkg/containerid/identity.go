// Package containerid maps an owner to its CNI_CONTAINERID: a pure function, so
// that an owner who asks again finds what it held even if the journal is lost
// (docs/how-it-works.md, Identity).
package containerid

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	prefix  = "cilium-agent-"
	maxSlug = 32
	hashLen = 16
)

// ContainerID returns the container ID of an owner on a node in a network:
// cilium-agent-<slug>-<hash>. It is never longer than 62 bytes, is a DNS label
// and matches the pattern of the CNI spec (section 2, CNI_CONTAINERID).
func ContainerID(owner, node, network string) string {
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

// Generation returns the ID that an ADD uses while a DEL may still act on those of the
// generations before; generation 0 is the ID itself.
func Generation(containerID string, generation int) string {
	if generation == 0 {
		return containerID
	}
	return suffixed(containerID, fmt.Sprintf("-g%d", generation))
}

// Unique returns an ID of the same attachment that was never used before and is never
// made again, for a plugin whose DELs may act at any later time: not even a lost journal
// leads to an ID that such a DEL could release. It has 48 random bits.
func Unique(containerID string) string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return suffixed(containerID, "-u"+hex.EncodeToString(random[:]))
}

// suffixed adds a suffix to an ID. The slug gives way, so that the result stays a DNS label.
func suffixed(containerID, suffix string) string {
	if over := len(containerID) + len(suffix) - 63; over > 0 {
		cut := len(containerID) - hashLen - 1
		containerID = strings.TrimRight(containerID[:cut-over], "-") + containerID[cut:]
	}
	return containerID + suffix
}

// slug is the owner in lower case with every run of other characters one "-",
// at most 32 bytes, without a "-" at either end.
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
