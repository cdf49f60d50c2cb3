package containerid

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What a container ID must match: CNI spec section 2 (CNI_CONTAINERID), and a DNS label (RFC 1123
// section 2.1).
var (
	cniID    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// The hashes were computed by another program, over the parts with their lengths before them.
// They must never change: an owner would not find what it held.
func TestFor(t *testing.T) {
	for name, c := range map[string]struct{ owner, node, network, want string }{
		"router":           {"router", "worker-1", "net", "cilium-agent-router-d8010e1b33457019"},
		"pod":              {"kube-system/coredns-5d78", "worker-1", "net", "cilium-agent-kube-system-coredns-5d78-e4f2eebd1d9a29c4"},
		"no usable letter": {"///", "worker-1", "net", "cilium-agent-7997938edc6d9973"},
		"long owner":       {"namespace/" + strings.Repeat("p", 40), "worker-1", "net", "cilium-agent-namespace-pppppppppppppppppppppp-91716497e11c5ee4"},
		"cut after a dash": {strings.Repeat("a", 31) + "/b", "worker-1", "net", "cilium-agent-" + strings.Repeat("a", 31) + "-1ab670296e25e254"},
		"no text":          {"", "", "", "cilium-agent-9d908ecfb6b256de"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := For(c.owner, c.node, c.network); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestSlug(t *testing.T) {
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

func TestCollisions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// A small alphabet, so that the parts run together in many ways.
		part := rapid.StringOfN(rapid.SampledFrom([]rune("aA/-")), 0, 4, -1)
		type input struct{ owner, node, network string }
		a := input{part.Draw(rt, "owner"), part.Draw(rt, "node"), part.Draw(rt, "network")}
		b := input{part.Draw(rt, "other owner"), part.Draw(rt, "other node"), part.Draw(rt, "other network")}
		same := For(a.owner, a.node, a.network) == For(b.owner, b.node, b.network)
		if same != (a == b) {
			rt.Fatalf("%+v and %+v share an ID: %t", a, b, same)
		}
	})
}

func TestGeneration(t *testing.T) {
	short := For("router", "worker-1", "net")
	long := For(strings.Repeat("p", 99), "worker-1", "net")
	hash := long[len(long)-hashLen:]
	for name, c := range map[string]struct {
		id         string
		generation int
		want       string
	}{
		"0 is the ID itself":    {long, 0, long},
		"short ID":              {short, 2, short + "-g2"},
		"slug is shortened":     {long, 1, prefix + strings.Repeat("p", 30) + "-" + hash + "-g1"},
		"and shortened further": {long, 12345, prefix + strings.Repeat("p", 26) + "-" + hash + "-g12345"},
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

func TestUnique(t *testing.T) {
	for _, owner := range []string{"router", strings.Repeat("p", 99)} {
		id := For(owner, "worker-1", "net")
		a, b := Unique(id, "1"), Unique(id, "2")
		if a == b || !Match(a) || !dnsLabel.MatchString(a) || !strings.HasPrefix(a, id[:20]) {
			t.Errorf("%q and %q; want two different IDs of %s", a, b, id)
		}
	}
}

func TestMatchForeign(t *testing.T) {
	for _, id := range []string{
		"", "cilium-agent", "cilium-agent-", "cilium-agent-router",
		"cilium-agent-router-0123456789abcde", "cilium-agent-router-0123456789ABCDEF",
		"cilium-agent--0123456789abcdef", "x-cilium-agent-router-0123456789abcdef",
		"cilium-agent-router-0123456789abcdef-g0", "cilium-agent-router-0123456789abcdef\n",
		strings.Repeat("0123456789abcdef", 4),
	} {
		if Match(id) {
			t.Errorf("%q matches", id)
		}
	}
}

// Whatever an owner is called, its ID is valid, reproducible and different from all others.
func FuzzContainerID(f *testing.F) {
	f.Add("router", "health", "worker-1", "net", 0)
	f.Add("a/../b;IP=1\x00\n", "a/../b;IP=1\x00\r", "", "", 1)
	f.Add(strings.Repeat("p", 1<<10), strings.Repeat("p", 1<<10)+"q", "-", "\xff", 1<<40)
	f.Add("ab", "a", "", "b", -1)
	f.Add("", "0", "node", "pods", 123456)
	f.Fuzz(func(t *testing.T, owner, other, node, network string, generation int) {
		generation = max(generation, 0)
		id := Generation(For(owner, node, network), generation)
		if !cniID.MatchString(id) || !dnsLabel.MatchString(id) || !Match(id) {
			t.Errorf("owner %q has %q, which is not a container ID, or not a DNS label, or does not match", owner, id)
		}
		if again := Generation(For(owner, node, network), generation); again != id {
			t.Errorf("owner %q has %s and %s", owner, id, again)
		}
		for _, x := range []struct{ owner, node, network string }{
			{other, node, network}, {owner, other, network}, {owner, node, other}, {owner + node, "", network}, {owner, node + network, ""}, {node, owner, network},
		} {
			same := x.owner == owner && x.node == node && x.network == network
			if !same && For(x.owner, x.node, x.network) == For(owner, node, network) {
				t.Errorf("%+v has the ID %s of owner %q, node %q, network %q", x, id, owner, node, network)
			}
		}
		if next := Generation(For(owner, node, network), generation+1); generation < 1<<40 && next == id {
			t.Errorf("generations %d and %d share %s", generation, generation+1, id)
		}
	})
}

func TestSame(t *testing.T) {
	long := For(strings.Repeat("p", 60), "worker-1", "net")
	router := For("router", "worker-1", "net")
	for name, c := range map[string]struct {
		a, b string
		want bool
	}{
		"itself":               {router, router, true},
		"generation":           {router, Generation(router, 12), true},
		"unique":               {Generation(router, 1), Unique(router, "x"), true},
		"shortened":            {long, Unique(long, "x"), true},
		"another owner":        {router, For("health", "worker-1", "net"), false},
		"another network":      {router, For("router", "worker-1", "other"), false},
		"not of this package":  {"0123456789abcdef", "0123456789abcdef", false},
		"no container ID":      {"", router, false},
		"of a container":       {router, strings.Repeat("0123456789abcdef", 4), false},
		"the hash as the slug": {router, "cilium-agent-" + router[len(router)-16:] + "-0000000000000000", false},
	} {
		if got := Same(c.a, c.b); got != c.want {
			t.Errorf("%s: %s and %s: %t; want %t", name, c.a, c.b, got, c.want)
		}
	}
}
