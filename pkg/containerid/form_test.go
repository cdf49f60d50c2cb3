package containerid

import (
	"strings"
	"testing"
)

func TestEveryIDOfOursHasTheFormOfOne(t *testing.T) {
	for _, owner := range []string{"router", "", "default/pod-7", "ÄÖÜ", "0", "G-1", strings.Repeat("x", 400)} {
		for _, generation := range []int{0, 1, 12, 123456} {
			if id := Generation(ContainerID(owner, "node", "pods"), generation); !HasForm(id) {
				t.Errorf("%q of owner %q is not taken for one of ours", id, owner)
			}
		}
	}
}

func TestAnIDOfSomebodyElseHasAnotherForm(t *testing.T) {
	for _, id := range []string{
		"", "cilium-agent", "cilium-agent-", "cilium-agent-router",
		"cilium-agent-router-0123456789abcde", "cilium-agent-router-0123456789ABCDEF",
		"cilium-agent--0123456789abcdef", "x-cilium-agent-router-0123456789abcdef",
		"cilium-agent-router-0123456789abcdef-g0", "cilium-agent-router-0123456789abcdef\n",
		strings.Repeat("0123456789abcdef", 4),
	} {
		if HasForm(id) {
			t.Errorf("%q is taken for one of ours", id)
		}
	}
}
