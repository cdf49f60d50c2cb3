package plugin

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// prevResults remembers which results can be sent to a plugin as prevResult unchanged, so that a
// result is parsed once and not before each of its CHECKs. It keeps digests of the bytes, and so is
// right about a result regardless of its attachment. It is safe for concurrent use.
type prevResults struct {
	mu sync.Mutex
	// Two digests of one slot replace each other: a result that is not found is parsed again.
	slots [1024]digest
}

type digest [sha256.Size]byte

// digestOf returns the digest of a result in a CNI version.
func digestOf(raw []byte, cniVersion string) digest {
	return sha256.Sum256(slices.Concat([]byte(cniVersion), []byte("\n"), raw))
}

func (p *prevResults) slot(d digest) *digest {
	return &p.slots[(int(d[0])<<8|int(d[1]))%len(p.slots)]
}

// add remembers a result that is in a CNI version and can be parsed.
func (p *prevResults) add(raw []byte, cniVersion string) {
	d := digestOf(raw, cniVersion)
	p.mu.Lock()
	defer p.mu.Unlock()
	*p.slot(d) = d
}

func (p *prevResults) has(raw []byte, cniVersion string) bool {
	d := digestOf(raw, cniVersion)
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.slot(d) == d
}

// forCall returns prevResult for a call, in the CNI version of its invocation; nil for a verb that
// takes none.
func (p *prevResults) forCall(verb string, c call.Call) (json.RawMessage, error) {
	version := c.Invocation.CNIVersion
	if len(c.PrevResult) == 0 || !takesPrevResult(verb, version) {
		return nil, nil
	}
	if p.has(c.PrevResult, version) {
		return c.PrevResult, nil
	}
	prev, err := resultAs(c.PrevResult, version)
	switch {
	case err == nil && bytes.Equal(prev, c.PrevResult):
		p.add(prev, version)
		return prev, nil
	case err == nil:
		return prev, nil
	case verb == call.VerbDel:
		// DEL may go without it (CNI spec section 2, "DEL"), and otherwise the address could never
		// be released.
		return nil, nil
	default:
		return nil, fmt.Errorf("prevResult: %w", err)
	}
}

// takesPrevResult follows CNI spec section 2: CHECK must and DEL should have it, both since 0.4.0.
func takesPrevResult(verb, cniVersion string) bool {
	return (verb == call.VerbCheck || verb == call.VerbDel) && atLeast(cniVersion, "0.4.0")
}

// appendPrevResult returns a network configuration with prevResult as its last member. Both must be
// valid JSON. It returns false, and the configuration must be parsed, unless the bytes show an
// object without such a member: a backslash could hide one.
func appendPrevResult(config, prev []byte) ([]byte, bool) {
	const key = `"prevResult"`
	if !bytes.HasPrefix(config, []byte(`{"`)) || !bytes.HasSuffix(config, []byte("}")) ||
		bytes.Contains(config, []byte(key)) || bytes.ContainsRune(config, '\\') {
		return nil, false
	}
	out := make([]byte, 0, len(config)+len(key)+len(prev)+len(",:"))
	out = append(out, config[:len(config)-1]...)
	out = append(out, ","+key+":"...)
	out = append(out, prev...)
	return append(out, '}'), true
}
