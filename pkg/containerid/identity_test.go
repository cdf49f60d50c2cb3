package containerid

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What a container ID must match: CNI spec section 2 (CNI_CONTAINERID), and a
// DNS label (RFC 1123 section 2.1).
var (
	cniID    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// The hashes were worked out by another program, over the parts with their
// lengths before them. They must never change: an owner would not find again what it held.
func TestAnOwnersIDIsKnownInAdvance(t *testing.T) {
	for name, c := range map[string]struct{ owner, node, network, want string }{
		"an agent's own owner":             {"router", "worker-1", "net", "cilium-agent-router-d8010e1b33457019"},
		"a pod":                            {"kube-system/coredns-5d78", "worker-1", "net", "cilium-agent-kube-system-coredns-5d78-e4f2eebd1d9a29c4"},
		"an owner without a usable letter": {"///", "worker-1", "net", "cilium-agent-7997938edc6d9973"},
		"an owner longer than the slug":    {"namespace/" + strings.Repeat("p", 40), "worker-1", "net", "cilium-agent-namespace-pppppppppppppppppppppp-91716497e11c5ee4"},
		"an owner cut right behind a dash": {strings.Repeat("a", 31) + "/b", "worker-1", "net", "cilium-agent-" + strings.Repeat("a", 31) + "-1ab670296e25e254"},
		"an owner without any text":        {"", "", "", "cilium-agent-9d908ecfb6b256de"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ContainerID(c.owner, c.node, c.network); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestASlugIsTheOwnerInPlainLetters(t *testing.T) {
	for owner, want := range map[string]string{
		"router":        "router",
		"Kube-System/A": "kube-system-a",
		"a__//..b":      "a-b",
		"--a--":         "a",
		"žluť/kůň":      "lu-k",
		"a\x00b\n":      "a-b",
		"\xff\xfe":      "",
	} {
		if got := slug(owner); got != want {
			t.Errorf("%q became %q, want %q", owner, got, want)
		}
	}
}

func TestEveryIDIsACNIContainerIDAndADNSLabel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		owner, node, network := rapid.String().Draw(rt, "owner"), rapid.String().Draw(rt, "node"), rapid.String().Draw(rt, "network")
		id := Generation(ContainerID(owner, node, network), rapid.IntRange(0, 1<<40).Draw(rt, "generation"))
		if !cniID.MatchString(id) || !dnsLabel.MatchString(id) {
			rt.Fatalf("%q is no container ID or no DNS label", id)
		}
	})
}

func TestOwnersNodesAndNetworksDoNotShareAnID(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// A small alphabet, so that the parts run together in many ways.
		part := rapid.StringOfN(rapid.SampledFrom([]rune("aA/-")), 0, 4, -1)
		type who struct{ owner, node, network string }
		a := who{part.Draw(rt, "owner"), part.Draw(rt, "node"), part.Draw(rt, "network")}
		b := who{part.Draw(rt, "other owner"), part.Draw(rt, "other node"), part.Draw(rt, "other network")}
		same := ContainerID(a.owner, a.node, a.network) == ContainerID(b.owner, b.node, b.network)
		if same != (a == b) {
			rt.Fatalf("%+v and %+v: one ID is %t", a, b, same)
		}
	})
}

func TestAGenerationIsAnIDOfItsOwn(t *testing.T) {
	short := ContainerID("router", "worker-1", "net")
	long := ContainerID(strings.Repeat("p", 99), "worker-1", "net")
	hash := long[len(long)-hashLen:]
	for name, c := range map[string]struct {
		id         string
		generation int
		want       string
	}{
		"the first is the ID itself":       {long, 0, long},
		"a short ID gets a suffix":         {short, 2, short + "-g2"},
		"the slug of a long one gives way": {long, 1, prefix + strings.Repeat("p", 30) + "-" + hash + "-g1"},
		"and gives way further":            {long, 12345, prefix + strings.Repeat("p", 26) + "-" + hash + "-g12345"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Generation(c.id, c.generation); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	seen := map[string]int{}
	for g := range 200 {
		id := Generation(long, g)
		if before, ok := seen[id]; ok {
			t.Errorf("generations %d and %d share %s", before, g, id)
		}
		seen[id] = g
	}
}

// FuzzContainerID: whatever the owner is called, its ID can be used, is the same
// each time, and is nobody else's.
func FuzzContainerID(f *testing.F) {
	f.Add("router", "health", "worker-1", "net", 0)
	f.Add("a/../b;IP=1\x00\n", "a/../b;IP=1\x00\r", "", "", 1)
	f.Add(strings.Repeat("p", 1<<10), strings.Repeat("p", 1<<10)+"q", "-", "\xff", 1<<40)
	f.Add("ab", "a", "", "b", -1)
	f.Fuzz(func(t *testing.T, owner, other, node, network string, generation int) {
		generation = max(generation, 0)
		id := Generation(ContainerID(owner, node, network), generation)
		if !cniID.MatchString(id) || !dnsLabel.MatchString(id) {
			t.Errorf("owner %q has %q, which is no container ID or no DNS label", owner, id)
		}
		if again := Generation(ContainerID(owner, node, network), generation); again != id {
			t.Errorf("owner %q has %s and %s", owner, id, again)
		}
		for _, x := range []struct{ owner, node, network string }{
			{other, node, network}, {owner, other, network}, {owner, node, other}, {owner + node, "", network}, {owner, node + network, ""}, {node, owner, network},
		} {
			same := x.owner == owner && x.node == node && x.network == network
			if !same && ContainerID(x.owner, x.node, x.network) == ContainerID(owner, node, network) {
				t.Errorf("%+v has the ID %s of owner %q, node %q, network %q", x, id, owner, node, network)
			}
		}
		if next := Generation(ContainerID(owner, node, network), generation+1); generation < 1<<40 && next == id {
			t.Errorf("generations %d and %d share %s", generation, generation+1, id)
		}
	})
}
