package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// pluginFault is one way in which a plugin fails, and what becomes of an
// allocate for an owner that holds nothing.
type pluginFault struct {
	// script is for the scripted plugin; afterWork in it makes an address stay
	// that nobody was told of.
	script string
	// file replaces the plugin's executable, if script is empty; no file if nil.
	file *file
	// status and says are the answer to the allocate, never said if it succeeds.
	status int
	says   string
	// unknown: the ADD may still act, for as long as the profile says.
	unknown bool
	// onlyADD: a verb without a result does not fail by it, or as slowly as others.
	onlyADD bool
}

type file struct {
	mode    os.FileMode
	content string
}

// neighbour is the address of an owner who is there before the fault: the first
// that the plugin gives.
const neighbour = "10.15.0.2"

func pluginFaults() map[string]pluginFault {
	result := func(ips ...string) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","ips":[%s]}`, strings.Join(ips, ","))
	}
	address := func(ip string) string { return fmt.Sprintf(`{"address":%q}`, ip+"/24") }
	afterWork := func(more string) string { return `{"afterWork":true,` + more + `}` }
	// The header of a 64-bit ELF program for a machine type that no processor has.
	alien := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xff\xff\x01" + strings.Repeat("\x00", 43)

	faults := map[string]pluginFault{
		"missing":                 {status: 502, says: "--cni-bin-dir"},
		"not executable":          {file: &file{0o644, alien}, status: 502, says: "executable"},
		"for another machine":     {file: &file{0o755, alien}, status: 502, says: "exec format error"},
		"hangs":                   {script: afterWork(`"hang":true`), status: 502, says: "did not end within", unknown: true},
		"ignores SIGTERM":         {script: afterWork(`"hang":true,"ignoreTerm":true`), status: 502, says: "did not end within", unknown: true, onlyADD: true},
		"succeeds too late":       {script: `{"awaitTerm":true}`, status: 502, says: "did not end within", unknown: true, onlyADD: true},
		"leaves a child":          {script: `{"holdStdout":"go"}`, status: 201, onlyADD: true},
		"prints nothing":          {script: afterWork(`"exitCode":0`), status: 502, says: "cannot be parsed", unknown: true, onlyADD: true},
		"prints garbage":          {script: afterWork(`"stdout":"<html>"`), status: 502, says: "cannot be parsed", unknown: true, onlyADD: true},
		"prints two documents":    {script: afterWork(`"stdout":` + strconv.Quote(strings.Repeat(result(address("10.15.0.3")), 2))), status: 502, says: "cannot be parsed", unknown: true, onlyADD: true},
		"prints 100 MB":           {script: afterWork(`"stdoutBytes":104857600`), status: 502, says: "more than", unknown: true},
		"returns no address":      {script: afterWork(`"result":` + result()), status: 502, says: "no address", unknown: true, onlyADD: true},
		"returns one twice":       {script: afterWork(`"result":` + result(address("10.15.0.3"), address("10.15.0.3"))), status: 502, says: "10.15.0.3 twice", unknown: true, onlyADD: true},
		"returns a neighbour's":   {script: afterWork(`"result":` + result(address(neighbour))), status: 502, says: "has already; ours was released", onlyADD: true},
		"error with exit 0":       {script: afterWork(`"error":{"code":100,"msg":"no more"},"exitCode":0`), status: 502, says: "no more", unknown: true},
		"result with exit 1":      {script: afterWork(`"result":` + result(address("10.15.0.3")) + `,"exitCode":1`), status: 502, says: "not a CNI error", unknown: true},
		"fails without output":    {script: afterWork(`"exitCode":1`), status: 502, says: "nothing on stdout", unknown: true},
		"crashes (SIGSEGV)":       {script: afterWork(`"shell":"kill -SEGV $$"`), status: 502, says: "segmentation fault", unknown: true},
		"is killed (SIGKILL)":     {script: afterWork(`"killSelf":9`), status: 502, says: "killed", unknown: true},
		"writes a lot to stderr":  {script: `{"stderrBytes":104857600}`, status: 201, onlyADD: true},
		"fails with much to tell": {script: afterWork(`"error":{"code":100,"msg":"full"},"stderrBytes":1048576`), status: 502, says: "full"},
	}
	// CNI's own codes (spec section 5) and those that plugins use.
	for _, code := range []int{5, 7, 11, 50, 100, 999} {
		faults[fmt.Sprintf("code %d", code)] = pluginFault{
			script: afterWork(fmt.Sprintf(`"error":{"code":%d,"msg":"not now"}`, code)),
			status: 502, says: fmt.Sprintf("(code %d): not now", code),
		}
	}
	return faults
}

// limit is the time limit where the plugin does not end by itself. Elsewhere it has as
// long as it has by default: how slow it is, is the machine's to say.
func (f pluginFault) limit() []string {
	if strings.Contains(f.says, "did not end within") {
		return []string{"--plugin-timeout=3s"}
	}
	return nil
}

// bench is a sidecar with the scripted plugin, and a neighbour who holds an address.
type bench struct {
	*harness.Sidecar
	node   *harness.Node
	plugin harness.Scripted
	binary string
}

// newBench imitates a plugin type: host-local, whose profile is known, or one
// that no profile knows.
func newBench(t *testing.T, pluginType string, flags ...string) bench {
	t.Helper()
	n := harness.NewNode(t)
	b := bench{node: n, binary: filepath.Join(n.BinDir, pluginType)}
	if err := os.RemoveAll(b.binary); err != nil {
		t.Fatal(err)
	}
	b.plugin = n.InstallScripted(t, pluginType)
	n.Store = func() ([]oracle.Lease, error) { return b.plugin.Leases("pods") }
	n.WriteNetwork(t, "05-cilium", harness.Network{
		Name: "pods", CNIVersion: "1.0.0", Plugin: pluginType, IPAM: map[string]any{"subnet": "10.15.0.0/24"},
	})
	b.Sidecar = n.Start(t, append([]string{"--enable-ipv6=false"}, flags...)...)
	b.wantNeighbour(t)
	return b
}

// suffer lets a verb fail. What it returns takes the cause away.
func (b bench) suffer(t *testing.T, verb string, f pluginFault) (reacquire func()) {
	t.Helper()
	if f.script != "" {
		b.plugin.SetScript(t, verb, f.script)
		return func() { b.plugin.ClearScript(t, verb) }
	}
	away := b.binary + ".away"
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(b.binary, away)
	if f.file != nil {
		if err := os.WriteFile(b.binary, []byte(f.file.content), f.file.mode); err != nil {
			t.Fatal(err)
		}
	}
	return func() { move(away, b.binary) }
}

// wantNeighbour asks for the address of the neighbour, which never changes.
func (b bench) wantNeighbour(t *testing.T) {
	t.Helper()
	if got := b.AllocateFor(t, "neighbour"); !slices.Equal(got, []string{neighbour}) {
		t.Errorf("the neighbour has %q; want %s", got, neighbour)
	}
}

// wantAnswer judges a refusal by its code and words.
func wantAnswer(t *testing.T, a harness.Response, status int, says string) {
	t.Helper()
	if a.Status != status || !strings.Contains(a.String(), says) {
		t.Errorf("answered %s; want %d and %q", a, status, says)
	}
}

// wantState judges the record of an owner.
func (b bench) wantState(t *testing.T, owner, want string) {
	t.Helper()
	got := none
	if a := b.Attachment(t, owner); a != nil {
		got = a.State
	}
	if got != want {
		t.Errorf("the record of %s is %s; want %s", owner, got, want)
	}
}

func TestAnAllocateWithAFaultyPluginIsRefusedLeaksNothingAndHeals(t *testing.T) {
	t.Parallel()
	count := newTally(t, faultyPlugin)
	for name, f := range pluginFaults() {
		for _, pluginType := range []string{"host-local", "unheard-of"} {
			t.Run(name+"/"+pluginType, func(t *testing.T) {
				t.Parallel()
				count.watch(t)
				b := newBench(t, pluginType, f.limit()...)
				memory := b.peakMemory(t)
				reacquire := b.suffer(t, "ADD", f)
				wantAnswer(t, b.TryAllocate(t, harness.Request{Owner: "router"}), f.status, f.says)
				b.wantState(t, "router", f.leaves(pluginType))
				b.wantNeighbour(t)
				if f.script == "" {
					wantUnready(t, b.Sidecar, f.says)
				}
				// What a plugin allocated and did not say is given back at once.
				b.WaitConsistent(t)
				if grown := b.peakMemory(t) - memory; grown > 64<<20 {
					t.Errorf("the sidecar's memory grew by %d MiB", grown>>20)
				}

				reacquire()
				if got := b.AllocateFor(t, "router"); len(got) != 1 || got[0] == neighbour {
					t.Errorf("afterwards the owner got %q; want an address of its own", got)
				}
				b.wantState(t, "router", "held")
				b.wantNeighbour(t)
				b.WaitConsistent(t)
			})
		}
	}
}

// leaves is the state of the record after the fault: an ADD of a plugin that
// nobody knows may outlive its process by minutes, and so does the record.
func (f pluginFault) leaves(pluginType string) string {
	switch {
	case f.status == http.StatusCreated:
		return "held"
	case f.unknown && pluginType != "host-local":
		return "adding"
	default:
		return none
	}
}

func TestAHeldAddressSurvivesAPluginThatCannotBeAskedAboutIt(t *testing.T) {
	t.Parallel()
	count := newTally(t, faultyPlugin)
	for name, f := range pluginFaults() {
		if f.onlyADD {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			b := newBench(t, "host-local", append(f.limit(), "--verify-interval=0s")...)
			reacquire := b.suffer(t, "CHECK", f)
			a := b.TryAllocate(t, harness.Request{Owner: "neighbour"})
			wantAnswer(t, a, http.StatusBadGateway, "the plugin could not verify")
			b.wantState(t, "neighbour", "held")
			b.WaitConsistent(t)

			reacquire()
			b.wantNeighbour(t)
			if c := b.Health(t).DelegatedIPAM.Counters; c["lost"] != 0 {
				t.Errorf("the counters are %v; want nothing lost", c)
			}
		})
	}
}

func TestAReleaseThatThePluginFailsIsKeptUntilItHasWorked(t *testing.T) {
	t.Parallel()
	count := newTally(t, faultyPlugin)
	for name, f := range pluginFaults() {
		if f.onlyADD {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count.watch(t)
			b := newBench(t, "host-local", f.limit()...)
			reacquire := b.suffer(t, "DEL", f)
			wantAnswer(t, b.TryRelease(t, neighbour), http.StatusInternalServerError, "retried in the background")
			b.wantState(t, "neighbour", "releasing")

			reacquire()
			b.releaseUntilItWorks(t)
			b.wantState(t, "neighbour", none)
			b.WaitConsistent(t)
		})
	}
}

func TestADELThatFailsTenTimesIsTriedUntilItWorks(t *testing.T) {
	t.Parallel()
	newTally(t, faultyPlugin).watch(t)
	b := newBench(t, "host-local")
	before := b.plugin.CallCount(t, "DEL")
	b.plugin.SetScript(t, "DEL", `{"times":10,"error":{"code":11,"msg":"try again later"}}`)
	wantAnswer(t, b.TryRelease(t, neighbour), http.StatusInternalServerError, "try again later")
	b.wantState(t, "neighbour", "releasing")

	b.releaseUntilItWorks(t)
	if calls := b.plugin.CallCount(t, "DEL") - before; calls != 11 {
		t.Errorf("DEL was called %d times; want 10 failures and a success", calls)
	}
	b.wantState(t, "neighbour", none)
	b.WaitConsistent(t)
	b.wantNeighbour(t)
}

// releaseUntilItWorks asks at once what the background asks more and more
// rarely; the background may be the first.
func (b bench) releaseUntilItWorks(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the release", func() error {
		switch a := b.TryRelease(t, neighbour); a.Status {
		case http.StatusOK, http.StatusNotFound:
			return nil
		default:
			return fmt.Errorf("answered %s", a)
		}
	})
}

// peakMemory is the most memory that the sidecar has ever had, in bytes
// (proc_pid_status(5), VmHWM).
func (b bench) peakMemory(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(text, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no VmHWM in %s", data)
	return 0
}
