package delegate

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// prevResults remembers which results can be given back to a plugin as they are, so
// that a result is read once and not before each of its CHECKs. It keeps sums of
// their bytes, and so is right about a result whatever has become of its
// attachment. It is safe for concurrent use.
type prevResults struct {
	mu sync.Mutex
	// Two that meet in one place take turns: a result that is not found is read again.
	fit [1024]sum
}

type sum [sha256.Size]byte

// sumOf is of a result and the CNI version that it is to be of.
func sumOf(raw []byte, cniVersion string) sum {
	return sha256.Sum256(slices.Concat([]byte(cniVersion), []byte("\n"), raw))
}

func (p *prevResults) place(s sum) *sum {
	return &p.fit[(int(s[0])<<8|int(s[1]))%len(p.fit)]
}

// remember that a result is of a CNI version and can be read.
func (p *prevResults) remember(raw []byte, cniVersion string) {
	s := sumOf(raw, cniVersion)
	p.mu.Lock()
	defer p.mu.Unlock()
	*p.place(s) = s
}

func (p *prevResults) knows(raw []byte, cniVersion string) bool {
	s := sumOf(raw, cniVersion)
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.place(s) == s
}

// of returns the result of the ADD for the verbs that take it; nil for the others.
func (p *prevResults) of(verb string, c call.Call) (json.RawMessage, error) {
	version := c.Invocation.CNIVersion
	if len(c.PrevResult) == 0 || !takesPrevResult(verb, version) {
		return nil, nil
	}
	if p.knows(c.PrevResult, version) {
		return c.PrevResult, nil
	}
	prev, err := resultAs(c.PrevResult, version)
	switch {
	case err == nil && bytes.Equal(prev, c.PrevResult):
		p.remember(prev, version)
		return prev, nil
	case err == nil:
		return prev, nil
	case verb == call.VerbDel:
		// DEL may go without it (CNI spec section 2, "DEL"), and that is better
		// than an address that can never be given back.
		return nil, nil
	default:
		return nil, fmt.Errorf("prevResult: %w", err)
	}
}

// takesPrevResult follows CNI spec section 2: CHECK must and DEL should have
// it, both since 0.4.0.
func takesPrevResult(verb, cniVersion string) bool {
	return (verb == call.VerbCheck || verb == call.VerbDel) && atLeast(cniVersion, "0.4.0")
}

// withPrevResult returns a configuration with prevResult as its last member. Both
// must be valid JSON. It is false, and the configuration must be parsed, unless the
// bytes show that they are an object without such a member: a backslash could hide
// one.
func withPrevResult(config, prev []byte) ([]byte, bool) {
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
