package contract

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const (
	// differentialRequests are sent for each set of families.
	differentialRequests = 1000
	differentialSeed     = 16
	// differentialPairs share the requests of a set.
	differentialPairs = 2

	// refusedCaller is a rule.
	refusedCaller = "caller that may not call"
)

// The daemon and Cilium's server must respond to generated requests alike, but for the rules, of
// which each must be seen.
func TestDifferences(t *testing.T) {
	t.Parallel()
	rules := &ruleSet{differenceRules(), map[string]int{}, sync.Mutex{}}
	t.Run("requests", func(t *testing.T) {
		for _, families := range [][]string{{ipv4}, {ipv4, ipv6}} {
			for part := range differentialPairs {
				t.Run(fmt.Sprint(families, part), func(t *testing.T) {
					t.Parallel()
					p := newPair(t, families)
					g := generator{rand.New(rand.NewPCG(differentialSeed, uint64(len(families)))), len(families) == 2, os.Geteuid() == 0}
					for number := range differentialRequests {
						if r := g.request(number); number%differentialPairs == part {
							p.compare(t, r, rules)
						}
					}
					if strings.Contains(p.daemon.Log(), "panic") {
						t.Error("the daemon's log has a panic")
					}
				})
			}
		}
	})
	compareBusy(t, rules)
	for name := range rules.rules {
		if name == refusedCaller && os.Geteuid() != 0 {
			continue // only root can connect as another user
		}
		if rules.seen[name] == 0 {
			t.Errorf("no request shows %q", name)
		}
	}
}

// ruleSet counts how often each rule was seen.
type ruleSet struct {
	rules map[string]differenceRule
	seen  map[string]int
	mu    sync.Mutex
}

// find counts the rules of the differences of two answers. One without a rule is an error.
func (s *ruleSet) find(t *testing.T, r request, cilium, ours answer) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range differences(r, cilium, ours) {
		found := false
		for name, rule := range s.rules {
			if rule.matches(r, d) {
				s.seen[name]++
				found = true
			}
		}
		if !found {
			t.Errorf("no rule for: %s\n%s: Cilium %.200q, the daemon %.200q", r, d.part, d.cilium, d.ours)
		}
	}
}

// pair is a daemon and a Cilium agent with the same families and ranges.
type pair struct {
	families []string
	daemon   *harness.Daemon
	cilium   *ciliumAgent
}

func newPair(t *testing.T, families []string) pair {
	t.Helper()
	network, flags := harness.DualStack(), []string{"--socket-mode=0666", "--owners=o-*,anonymous/*"}
	if len(families) == 1 {
		network, flags = harness.IPv4Only(), append(flags, "--enable-ipv6=false")
	}
	n := nodeWith(t, network)
	check.Must(t, os.Chmod(n.Dir, 0o755)) // for refused callers
	return pair{families, launch(t, n, flags...), startCiliumAgent(t, families...)}
}

// compare sends a request to both and finds the rule of each difference.
func (p pair) compare(t *testing.T, r request, rules *ruleSet) {
	t.Helper()
	p.cilium.reset(p.families)
	dialCilium := dialer(p.cilium.socket)
	held := prepare(t, r, dialCilium)
	if r.labels[ipPart] == "an endpoint's" {
		p.cilium.useByEndpoint(held["other4"])
	}
	cilium := answerTo(t, r, held, dialCilium)

	dialDaemon := dialer(p.daemon.Socket)
	held = prepare(t, r, dialDaemon)
	if r.labels[callerPart] == "refused" {
		dialDaemon = func() (net.Conn, error) { return p.daemon.DialAs(harness.User{UID: otherID, GID: otherID}) }
	}
	ours := answerTo(t, r, held, dialDaemon)
	for _, a := range p.daemon.List(t) {
		for _, at := range a.Addresses {
			p.daemon.Do(t, "DELETE", "/v1/ipam/"+at.IP.String())
		}
	}
	rules.find(t, r, cilium, ours)
}

// prepare allocates the addresses that a request names, and returns them.
func prepare(t *testing.T, r request, dial dialFunc) map[string]string {
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

// dialFunc opens a connection to a server.
type dialFunc func() (net.Conn, error)

func dialer(socket string) dialFunc {
	return func() (net.Conn, error) { return net.Dial("unix", socket) }
}

func answerTo(t *testing.T, r request, held map[string]string, dial dialFunc) answer {
	t.Helper()
	conn, err := dial()
	check.Must(t, err)
	a, err := exchange(conn, r.raw(held), r.method, held)
	if err != nil {
		t.Fatalf("%s: %v; want a response", r, err)
	}
	return a
}

// An ADD waits for the file "$0.go".
const pausedScript = version + `if [ "$CNI_COMMAND" = ADD ]; then
  until [ -e "$0.go" ]; do sleep 0.02; done
  echo '{"cniVersion":"1.0.0","ips":[{"address":"10.15.0.7/24"}]}'
fi
`

// compareBusy compares a failing restore where the daemon's queue is full.
func compareBusy(t *testing.T, rules *ruleSet) {
	t.Helper()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "scripted"})
	n.Store = nil
	n.InstallScript(t, "scripted", pausedScript)
	s := launch(t, n, "--max-plugin-processes=1", "--max-queued-requests=3") // one place is reserved for pods
	var waiting sync.WaitGroup
	for i := range 2 {
		waiting.Go(func() {
			if a, err := s.Try(http.MethodPost, fmt.Sprintf("/v1/ipam?owner=waiting-%d", i)); err != nil {
				t.Errorf("a waiting request was answered %s, %v", a, err)
			}
		})
	}
	t.Cleanup(func() {
		check.Must(t, os.WriteFile(filepath.Join(n.BinDir, "scripted.go"), nil, 0o600))
		waiting.Wait()
	})
	harness.Eventually(t, "a request to wait for a process", func() error {
		const line = "\ndelegated_ipam_queue_length{queue=\"process\"} 1\n"
		if a := s.Do(t, http.MethodGet, "/metrics"); !strings.Contains(string(a.Body), line) {
			return fmt.Errorf("the metrics lack %q", line)
		}
		return nil
	})

	r := request{
		labels: labels{operation: "restore", ipPart: "the router's", poolPart: "default"},
		method: "POST", target: "/v1/ipam/10.15.0.1?owner=o&pool=default",
	}
	theirs := answerTo(t, r, nil, dialer(startCiliumAgent(t, ipv4).socket))
	rules.find(t, r, theirs, answerTo(t, r, nil, dialer(n.Socket)))
}
