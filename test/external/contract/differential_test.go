package contract

import (
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// differentialRequests are sent for each set of families.
	differentialRequests = 1000
	differentialSeed     = 16

	// refusedCaller is a rule.
	refusedCaller = "caller that may not call"
)

// The sidecar and Cilium's server must respond to generated requests alike, but for the rules, of
// which each must be seen.
func TestDifferences(t *testing.T) {
	t.Parallel()
	rules := differenceRules()
	seen := map[string]int{}
	for _, families := range [][]string{{ipv4}, {ipv4, ipv6}} {
		p := newPair(t, families)
		g := generator{rand.New(rand.NewPCG(differentialSeed, uint64(len(families)))), len(families) == 2, os.Geteuid() == 0}
		for number := range differentialRequests {
			p.compare(t, g.request(number), rules, seen)
		}
		if strings.Contains(p.sidecar.Log(), "panic") {
			t.Error("the sidecar's log has a panic")
		}
	}
	compareBusy(t, rules, seen)
	for name := range rules {
		if name == refusedCaller && os.Geteuid() != 0 {
			continue // only root can connect as another user
		}
		if seen[name] == 0 {
			t.Errorf("no request shows %q", name)
		}
	}
}

// pair is a sidecar and a Cilium agent with the same families and ranges.
type pair struct {
	families []string
	node     *harness.Node
	sidecar  *harness.Sidecar
	cilium   *ciliumAgent
}

func newPair(t *testing.T, families []string) pair {
	t.Helper()
	network, flags := harness.DualStack(), []string{"--socket-mode=0666", "--owners=o-*,anonymous/*"}
	if len(families) == 1 {
		network, flags = harness.IPv4Only(), append(flags, "--enable-ipv6=false")
	}
	n := nodeWith(t, network)
	harness.Must(t, os.Chmod(n.Dir, 0o755)) // for refused callers
	s := n.Launch(t, flags...)
	s.WaitReady(t)
	return pair{families, n, s, startCiliumAgent(t, families...)}
}

// compare sends a request to both and finds the rule of each difference.
func (p pair) compare(t *testing.T, r request, rules map[string]differenceRule, seen map[string]int) {
	t.Helper()
	p.cilium.reset(p.families)
	dialCilium := func() (net.Conn, error) { return net.Dial("unix", p.cilium.socket) }
	held := prepare(t, r, dialCilium)
	if r.labels[ipPart] == "an endpoint's" {
		p.cilium.useByEndpoint(held["other4"])
	}
	cilium := answerTo(t, r, held, dialCilium)

	dialSidecar := func() (net.Conn, error) { return net.Dial("unix", p.node.Socket) }
	held = prepare(t, r, dialSidecar)
	if r.labels[callerPart] == "refused" {
		dialSidecar = func() (net.Conn, error) { return p.sidecar.DialAs(harness.User{UID: otherID, GID: otherID}) }
	}
	ours := answerTo(t, r, held, dialSidecar)
	for _, a := range p.sidecar.List(t) {
		for _, address := range a.Addresses {
			p.sidecar.Do(t, "DELETE", "/v1/ipam/"+address.IP.String())
		}
	}

	findRules(t, r, differences(r, cilium, ours), rules, seen)
}

// findRules counts the rules of differences. One without a rule is an error.
func findRules(t *testing.T, r request, differences []difference, rules map[string]differenceRule, seen map[string]int) {
	t.Helper()
	for _, d := range differences {
		found := false
		for _, name := range sortedKeys(rules) {
			if rules[name].matches(r, d) {
				seen[name]++
				found = true
			}
		}
		if !found {
			t.Errorf("no rule for: %s\n%s: Cilium %.200q, the sidecar %.200q", r, d.part, d.cilium, d.ours)
		}
	}
}

// prepare allocates the addresses that a request names, and returns them.
func prepare(t *testing.T, r request, dial func() (net.Conn, error)) map[string]string {
	t.Helper()
	held := map[string]string{}
	own := r.labels[ownerPart] == "holds addresses" || strings.Contains(r.target, "{own")
	other := strings.Contains(r.target, "{other")
	for name, wanted := range map[string]bool{"own": own, "other": other} {
		if !wanted {
			continue
		}
		owner := r.owner
		if name == "other" {
			owner += "-other"
		}
		allocate := request{method: "POST", target: "/v1/ipam?pool=default&owner=" + owner}
		a := answerTo(t, allocate, nil, dial)
		if !strings.HasPrefix(a.code, "201") {
			t.Fatalf("the preparation of %s was answered %+v", r, a)
		}
		for family, suffix := range map[string]string{ipv4: "4", ipv6: "6"} {
			if ip := a.raw["address."+family]; ip != "" {
				held[name+suffix] = ip
			}
		}
	}
	return held
}

func answerTo(t *testing.T, r request, held map[string]string, dial func() (net.Conn, error)) answer {
	t.Helper()
	conn, err := dial()
	harness.Must(t, err)
	a, err := exchange(conn, r.raw(held), r.method, held)
	if err != nil {
		t.Fatalf("%s: %v; want a response", r, err)
	}
	return a
}
