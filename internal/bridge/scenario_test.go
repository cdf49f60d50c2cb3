package bridge

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/planner"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/scenario"
)

// script runs a scenario over a fixture.
type script struct {
	*testing.T
	*fixture
	m     *metrics
	began time.Time
	agent *fakeAgent
}

// TestScenarios runs the scenarios of testdata/*.txt, which package scenario reads. A line has commands, separated by
// semicolons. Those before the line "run SETTINGS" prepare the fixture; the bridge runs during the others:
//
//	30s                   time passes
//	hold 4; daemon away   a change, by which the bridge is woken; "quietly api ok" does not wake it
//	writes 2..5           a check of a number or a duration: "3", "3..", "..5s"
//	pool 1 2*             the published addresses: 10.0.0.1 and, suspended, 10.0.0.2
//
// "repeat 3 A / B" repeats commands. The other words are in changes, actions, numbers and texts.
//
//evidence:design/reliability etcd is restored to a release that ended long ago
func TestScenarios(t *testing.T) {
	scenario.Each(t, "testdata/*.txt", func(t *testing.T, lines []string) {
		s := &script{T: t, fixture: newFixture()}
		for i, line := range lines {
			if settings, ok := strings.CutPrefix(line, "run "); ok {
				runController(t, s.fixture, settingsOf(t, settings), func(t *testing.T, m *metrics) {
					s.T, s.m, s.began = t, m, time.Now()
					defer s.end()
					for _, line := range lines[i+1:] {
						s.do(line)
					}
				})
				return
			}
			s.do(line)
		}
		t.Error("the bridge is not run")
	})
}

// settingsOf returns settings such as "small pre-allocate=8".
func settingsOf(t *testing.T, text string) (s planner.Settings) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		number, _ := strconv.Atoi(value)
		switch name {
		case "small":
			s = smallSettings()
		case "default":
			s = defaultSettings()
		case "min-allocate":
			s.MinAllocate = number
		case "pre-allocate":
			s.PreAllocate = number
		case "max-allocate":
			s.MaxAllocate = number
		case "max-above-watermark":
			s.MaxAboveWatermark = number
		default:
			t.Fatalf("unknown setting %s", word)
		}
	}
	return s
}

// end lets hanging requests end, and stops the agent.
func (s *script) end() {
	s.update(func() { s.latency = 0 })
	if s.agent != nil {
		s.agent.stop()
	}
}

// do runs the commands of a line, and ends the test after the first failure.
func (s *script) do(line string) {
	s.Helper()
	for command := range strings.SplitSeq(line, ";") {
		command = strings.TrimSpace(command)
		if rest, ok := strings.CutPrefix(command, "repeat "); ok {
			times, rest, _ := strings.Cut(rest, " ")
			for range scenario.Numbers(s, []string{"1-" + times}) {
				s.do(strings.ReplaceAll(rest, " / ", ";"))
			}
			continue
		}
		if s.command(command); s.Failed() {
			s.Fatalf("after %s", command)
		}
	}
}

// command runs a change, an action or a check.
func (s *script) command(text string) {
	s.Helper()
	quiet, isQuiet := strings.CutPrefix(text, "quietly ")
	name, args, _ := strings.Cut(quiet, " ")
	duration, err := time.ParseDuration(name)
	switch change, act, number, shown := changes[name], actions[name], numbers[name], texts[name]; {
	case name == "":
	case err == nil:
		advance(duration)
	case change != nil && isQuiet:
		s.mu.Lock()
		defer s.mu.Unlock()
		change(s, args)
	case change != nil:
		s.update(func() { change(s, args) })
	case act != nil:
		act(s, args)
	case number != nil:
		s.mu.Lock()
		got := number(s)
		s.mu.Unlock()
		s.wantNumber(name, got, args)
	case shown != nil:
		check.Equal(s, name, shown(s), args)
	default:
		s.Fatalf("unknown command %q", text)
	}
}

// wantNumber compares a number, or a duration in seconds, with "3", "3..5", "3.." or "..5s".
func (s *script) wantNumber(name string, got float64, want string) {
	s.Helper()
	first, last, isRange := strings.Cut(want, "..")
	if !isRange {
		last = first
	}
	bound := func(text string, open float64) float64 {
		if text == "" {
			return open
		}
		if duration, err := time.ParseDuration(text); err == nil {
			return duration.Seconds()
		}
		number, err := strconv.ParseFloat(text, 64)
		check.Must(s, err)
		return number
	}
	if got < bound(first, math.Inf(-1)) || got > bound(last, math.Inf(1)) {
		s.Errorf("%s: got %v; want %s", name, got, want)
	}
}

// changes change the fixture, whose lock is held.
var changes = map[string]func(s *script, args string){
	// The daemon and the plugin.
	"hold": func(s *script, args string) { s.hold(s.number(args)) },
	"held-slots": func(s *script, args string) {
		for _, n := range s.list(args) {
			s.held[n] = ip(n + 1)
		}
	},
	"lose-slots": func(s *script, args string) {
		for _, n := range s.list(args) {
			delete(s.held, n)
		}
	},
	"capacity":        func(s *script, args string) { s.capacity = s.number(args) },
	"latency":         func(s *script, args string) { s.latency = s.duration(args) },
	"daemon":          func(s *script, args string) { s.daemonErr = failures[args] },
	"requests":        func(s *script, args string) { s.requestErr = failures[args] },
	"unrestorable":    func(s *script, args string) { s.unrestorable[s.address(args)] = true },
	"restorable":      func(s *script, args string) { delete(s.unrestorable, s.address(args)) },
	"unreleasable":    func(s *script, args string) { s.unreleasable[s.address(args)] = true },
	"releasable":      func(s *script, args string) { delete(s.unreleasable, s.address(args)) },
	"ignores-acquire": func(s *script, _ string) { s.ignoresAcquire = true },
	"unclaimed":       func(s *script, args string) { s.unclaimed = []netip.Addr{s.address(args)} },
	"store":           func(s *script, args string) { s.store = args },

	// The API server, the CiliumNode and the agent.
	"api":           func(s *script, args string) { s.apiErr, s.watchDown = failures[args], failures[args] != nil },
	"api-latency":   func(s *script, args string) { s.apiLatency = s.duration(args) },
	"watch-down":    func(s *script, _ string) { s.watchDown = true },
	"writes-are":    func(s *script, args string) { s.dryRunErr, s.writeErr = failures[args], failures[args] },
	"patches-are":   func(s *script, args string) { s.writeErr = failures[args] },
	"conflicts":     func(s *script, args string) { s.conflicts = s.number(args) },
	"version":       func(s *script, args string) { s.version = s.number(args) },
	"stale-cache":   func(s *script, _ string) { s.inCache = clone(s.node) },
	"touch":         func(*script, string) {},
	"no-node":       func(s *script, _ string) { s.node = nil },
	"new-node":      func(s *script, uid string) { s.create(types.UID(uid)) },
	"ciliumnode":    func(s *script, patch string) { check.Must(s, json.Unmarshal([]byte(patch), s.node)) },
	"no-handshakes": func(s *script, _ string) { clear(s.node.Status.IPAM.ReleaseIPs) },
	"no-entries":    func(s *script, _ string) { clear(s.node.Spec.IPAM.Pool) },
	"suspend": func(s *script, args string) {
		s.node.Spec.IPAM.Pool[s.address(args).String()] = planner.EntryOf(s.number(args)-1, true)
	},
	"unpublish": func(s *script, args string) { delete(s.node.Spec.IPAM.Pool, s.address(args).String()) },
	"used": func(s *script, args string) { // published addresses, and no others
		s.node.Status.IPAM.Used = map[string]planner.Entry{}
		for _, n := range s.list(args) {
			key := ip(n).String()
			s.node.Status.IPAM.Used[key] = planner.Entry{Owner: "default/pod", Resource: s.node.Spec.IPAM.Pool[key].Resource}
		}
	},
	"agent-is": func(s *script, args string) { s.agentSilent = args == "silent" },
	"released-elsewhere": func(s *script, args string) { // between two observations
		s.beforeGet = func() {
			delete(s.node.Spec.IPAM.Pool, s.address(args).String())
			delete(s.node.Status.IPAM.ReleaseIPs, planner.Ping.String())
			delete(s.held, s.number(args)-1)
		}
	},

	// The pods and the node.
	"pods": func(s *script, args string) { s.pods = s.number(args) },
	"pods-at": func(s *script, args string) {
		for _, n := range s.list(args) {
			s.podIPs[ip(n)] = true
			s.pods++
		}
	},
	"pods-are":    func(s *script, args string) { s.podsPending = args == "pending" },
	"watch-pods":  func(s *script, args string) { s.watchesPods = args == "yes" },
	"allocatable": func(s *script, args string) { s.allocatable, s.allocatableErr = 110, failures[args] },
	"max-pods":    func(s *script, args string) { s.allocatable = s.number(args) },
	// own-range is a node for 110 pods whose plugin keeps its allocations on the node.
	"own-range": func(s *script, _ string) {
		s.store, s.allocatable, s.watchesPods = storeOnNode, 110, true
		s.latency, s.apiLatency = 20*time.Millisecond, 10*time.Millisecond
	},
}

// failures are results of requests; "ok" is none.
var failures = map[string]error{
	"ok": nil, "down": errors.New("away"), "forbidden": patchForbidden(), "away": errAway(),
	"not-admitted": fail(reasonOwnerNotAdmitted, errors.New("forbidden")),
	"busy":         &failure{refused: true, reason: reasonDaemonBusy, err: errors.New("the queue is full"), after: time.Second},
	"failing":      &failure{refused: true, reason: reasonPluginFailed, err: errors.New("ADD failed")},
}

func (s *script) number(text string) int { return s.list(text)[0] }

func (s *script) list(text string) []int { return scenario.Numbers(s, strings.Fields(text)) }

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	check.Must(s, err)
	return d
}

// address returns the address of a number, or the one that is written.
func (s *script) address(text string) netip.Addr {
	if given, err := netip.ParseAddr(text); err == nil {
		return given
	}
	return ip(s.number(text))
}

// numbers are what a check compares with a number.
var numbers = map[string]func(s *script) float64{
	"published": func(s *script) float64 {
		if s.node == nil {
			return 0
		}
		return float64(len(s.node.Spec.IPAM.Pool))
	},
	"held":            func(s *script) float64 { return float64(len(s.held)) },
	"handshakes":      func(s *script) float64 { return float64(len(s.node.Status.IPAM.ReleaseIPs)) },
	"writes":          func(s *script) float64 { return float64(s.patches) },
	"reads":           func(s *script) float64 { return float64(s.gets) },
	"dry-runs":        func(s *script) float64 { return float64(s.dryRuns) },
	"lists":           func(s *script) float64 { return float64(s.lists) },
	"acquires":        func(s *script) float64 { return float64(s.acquires) },
	"releases":        func(s *script) float64 { return float64(s.releases) },
	"restores":        func(s *script) float64 { return float64(s.restores) },
	"since-start":     func(s *script) float64 { return time.Since(s.began).Seconds() },
	"started":         func(s *script) float64 { return float64(len(s.agent.started)) },
	"longest-wait":    func(s *script) float64 { return slices.Max(s.agent.started).Seconds() },
	"failed-adds":     func(s *script) float64 { return float64(len(s.agent.failures)) },
	"last-failed-add": func(s *script) float64 { return slices.Max(append(s.agent.failures, 0)).Seconds() },
}

// texts are what a check compares with a text.
var texts = map[string]func(s *script) string{
	"pool":       func(s *script) string { return strings.ReplaceAll(strings.Join(s.pool(), " "), "10.0.0.", "") },
	"events":     func(s *script) string { return strings.Join(s.eventReasons(), " ") },
	"other-mode": func(s *script) string { return s.node.OtherMode() },
}

// actions are other commands.
var actions = map[string]func(s *script, args string){
	"reset": func(s *script, _ string) { // the counters
		s.mu.Lock()
		defer s.mu.Unlock()
		s.patches, s.gets, s.dryRuns, s.lists, s.acquires, s.restores = 0, 0, 0, 0, 0, 0
		if s.agent != nil {
			s.agent.start = time.Now()
		}
	},
	"settle": func(*script, string) { synctest.Wait() },
	"until-published": func(s *script, _ string) {
		for len(s.pool()) == 0 && time.Since(s.began) < 2*busyPatience {
			advance(time.Millisecond)
		}
	},
	"in-pool":     func(s *script, args string) { s.wantInPool(args, true) },
	"not-in-pool": func(s *script, args string) { s.wantInPool(args, false) },
	"pods-published": func(s *script, _ string) {
		for ip := range s.podIPs {
			s.wantInPool(ip.String(), true)
		}
	},
	"none-unheld": func(s *script, _ string) {
		check.True(s, s.beforeGet == nil, "the other client has released nothing")
		check.Equal(s, "published although not held", s.publishedUnheld, nil)
	},
	"event":    func(s *script, reason string) { s.wantEvent(reason, true) },
	"no-event": func(s *script, reason string) { s.wantEvent(reason, false) },
	"once": func(s *script, _ string) {
		all := s.eventReasons()
		check.Equal(s, "Events", slices.Compact(slices.Clone(all)), all)
	},
	"readyz":  func(s *script, args string) { s.wantStatus("/readyz", args) },
	"healthz": func(s *script, args string) { s.wantStatus("/healthz", args) },
	"metric": func(s *script, args string) {
		name, want, _ := strings.Cut(args, " ")
		_, text := status(s.T, s.m, "/metrics")
		_, after, found := strings.Cut(text, "\n"+prefix+name+" ")
		value, _, _ := strings.Cut(after, "\n")
		got, err := strconv.ParseFloat(value, 64)
		check.True(s, found && err == nil, "no metric %s: %v", name, err)
		s.wantNumber(name, got, want)
	},
	"agent": func(s *script, interval string) { s.agent = startAgent(s.Context(), s.fixture, s.duration(interval)) },
	"bind": func(s *script, args string) { // COUNT LIFE INTERVAL
		words := strings.Fields(args)
		for range s.number(words[0]) {
			s.agent.addPod(s.duration(words[1]))
			advance(s.duration(words[2]))
		}
	},
}

// wantInPool checks for addresses, of which a suspended one has a * appended.
func (s *script) wantInPool(args string, want bool) {
	s.Helper()
	pool := s.pool()
	for _, key := range scenario.Words(args) {
		if number, err := strconv.Atoi(strings.TrimSuffix(key, "*")); err == nil {
			key = strings.Replace(key, strconv.Itoa(number), ip(number).String(), 1)
		}
		if slices.Contains(pool, key) != want {
			s.Errorf("the pool is %v; want %s in it: %t", pool, key, want)
		}
	}
}

func (s *script) wantEvent(reason string, want bool) {
	s.Helper()
	if got := s.eventReasons(); slices.Contains(got, reason) != want {
		s.Errorf("the Events are %v; want %s among them: %t", got, reason, want)
	}
}

// wantStatus checks the code of a response and a part of its text.
func (s *script) wantStatus(path, want string) {
	s.Helper()
	code, text, _ := strings.Cut(want, " ")
	if got, body := status(s.T, s.m, path); strconv.Itoa(got) != code || !strings.Contains(body, text) {
		s.Errorf("%s: %d %q; want %s", path, got, body, want)
	}
}

func status(t *testing.T, m *metrics, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}
