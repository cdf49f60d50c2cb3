package faults

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// pluginFault is a fault of a plugin, and the expected result of an allocate for a new owner.
type pluginFault struct {
	pluginType string
	// script is for the scripted plugin; with afterWork an address is allocated and not reported.
	script string
	// mode is that of foreignELF, which replaces the plugin's executable if script is empty; 0 only
	// removes the executable.
	mode os.FileMode
	// status and err are the response to the allocate; err is empty if it succeeds.
	status int
	err    string
	// unknown means that the ADD may still act, for the time in the profile.
	unknown bool
	// onlyADD excludes CHECK and DEL, which have no result, or for which the fault adds nothing.
	onlyADD bool
}

// foreignELF is the header of a 64-bit ELF program for the unassigned machine type 0xFFFF.
var foreignELF = "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xff\xff\x01" + strings.Repeat("\x00", 43)

func pluginFaults() map[string]pluginFault {
	result := func(ips ...string) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","ips":[%s]}`, strings.Join(ips, ","))
	}
	address := func(ip string) string { return fmt.Sprintf(`{"address":%q}`, ip+"/24") }
	many := make([]string, 65)
	for i := range many {
		many[i] = address(fmt.Sprintf("10.15.0.%d", 100+i))
	}
	afterWork := func(more string) string { return `{"afterWork":true,` + more + `}` }
	faults := map[string]pluginFault{
		"missing":                    {status: 502, err: "--cni-bin-dir"},
		"not executable":             {mode: 0o644, status: 502, err: "executable"},
		"for another architecture":   {mode: 0o755, status: 502, err: "exec format error"},
		"hangs":                      {script: afterWork(`"hang":true`), status: 502, err: "did not end within", unknown: true},
		"ignores SIGTERM":            {script: afterWork(`"hang":true,"ignoreTerm":true`), status: 502, err: "did not end within", unknown: true, onlyADD: true},
		"succeeds after SIGTERM":     {script: `{"awaitTerm":true}`, status: 502, err: "did not end within", unknown: true, onlyADD: true},
		"leaves a child":             {script: `{"holdStdout":"go"}`, status: 201, onlyADD: true},
		"prints nothing":             {script: afterWork(`"exitCode":0`), status: 502, err: "cannot be parsed", unknown: true, onlyADD: true},
		"prints garbage":             {script: afterWork(`"stdout":"<html>"`), status: 502, err: "cannot be parsed", unknown: true, onlyADD: true},
		"prints two documents":       {script: afterWork(`"stdout":` + strconv.Quote(strings.Repeat(result(address("10.15.0.3")), 2))), status: 502, err: "cannot be parsed", unknown: true, onlyADD: true},
		"prints 100 MB":              {script: afterWork(`"stdoutBytes":104857600`), status: 502, err: "more than", unknown: true},
		"returns no address":         {script: afterWork(`"result":` + result()), status: 502, err: "no address", unknown: true, onlyADD: true},
		"returns an address twice":   {script: afterWork(`"result":` + result(address("10.15.0.3"), address("10.15.0.3"))), status: 502, err: "10.15.0.3 twice", unknown: true, onlyADD: true},
		"returns 65 addresses":       {script: afterWork(`"result":` + result(many...)), status: 502, err: "65 addresses; expected at most 64", unknown: true, onlyADD: true},
		"returns another owner's":    {script: afterWork(`"result":` + result(address(otherAddress))), status: 502, err: "has already; ours was released", onlyADD: true},
		"error with exit 0":          {script: afterWork(`"error":{"code":100,"msg":"no more"},"exitCode":0`), status: 502, err: "no more", unknown: true},
		"result with exit 1":         {script: afterWork(`"result":` + result(address("10.15.0.3")) + `,"exitCode":1`), status: 502, err: "not a CNI error", unknown: true},
		"exits 1 silently":           {script: afterWork(`"exitCode":1`), status: 502, err: "nothing on stdout", unknown: true},
		"crashes (SIGSEGV)":          {script: afterWork(`"shell":"kill -SEGV $$"`), status: 502, err: "segmentation fault", unknown: true},
		"is killed (SIGKILL)":        {script: afterWork(`"killSelf":9`), status: 502, err: "killed", unknown: true},
		"prints 100 MB to stderr":    {script: `{"stderrBytes":104857600}`, status: 201, onlyADD: true},
		"error with 1 MiB of stderr": {script: afterWork(`"error":{"code":100,"msg":"full"},"stderrBytes":1048576`), status: 502, err: "full"},
	}
	// Codes of the CNI specification (section 5) and of plugins.
	for _, code := range []int{5, 7, 11, 50, 100, 999} {
		faults[fmt.Sprintf("code %d", code)] = pluginFault{
			script: afterWork(fmt.Sprintf(`"error":{"code":%d,"msg":"not now"}`, code)),
			status: 502, err: fmt.Sprintf("(code %d): not now", code),
		}
	}
	return faults
}

// flags returns a shorter time limit for a plugin that does not end. Other faults have the default
// limit, because the machine may be busy.
func (f pluginFault) flags() []string {
	if strings.Contains(f.err, "did not end within") {
		return []string{"--plugin-timeout=5s"}
	}
	return []string{"--verify-interval=1h"} // a held address needs no plugin
}

//evidence:design/reliability A: ADD
//evidence:design/reliability Plugin faults
//evidence:design/reliability error with code 5, 7, 11, 50, 100 or 999
func TestPluginFaultInADD(t *testing.T) {
	cases := map[string]pluginFault{}
	for name, fault := range pluginFaults() {
		for _, pluginType := range []string{"host-local", "unknown-type"} {
			fault.pluginType = pluginType
			cases[name+"/"+pluginType] = fault
		}
	}
	eachCase(t, faultyPlugin, cases, func(t *testing.T, _ *stats, fault pluginFault) {
		f := newPluginFixture(t, fault.pluginType, fault.flags()...)
		memory := peakMemory(t, f.Daemon)
		undo := f.inject(t, "ADD", fault)
		f.TryAllocate(t, harness.Request{Owner: "router"}).WantError(t, fault.status, fault.err)
		f.wantState(t, "router", fault.stateAfter())
		f.wantOther(t)
		if fault.script == "" {
			f.WaitNotReady(t, fault.err)
		}
		// An address that the plugin allocated without reporting it is released immediately.
		f.WaitConsistent(t)
		if grown := peakMemory(t, f.Daemon) - memory; grown > 64<<20 {
			t.Errorf("the daemon's memory grew by %d MiB", grown>>20)
		}

		undo()
		if got := f.AllocateFor(t, "router"); len(got) != 1 || got[0] == otherAddress {
			t.Errorf("afterwards the owner got %q; want another address", got)
		}
		f.wantState(t, "router", "held")
		f.wantOther(t)
		f.WaitConsistent(t)
	})
}

// stateAfter returns the state of the record after the fault. An ADD of an unknown plugin type may
// act for minutes after its process, so its record remains.
func (f pluginFault) stateAfter() string {
	switch {
	case f.status == http.StatusCreated:
		return "held"
	case f.unknown && f.pluginType != "host-local":
		return "adding"
	default:
		return none
	}
}

// faultsOfAllVerbs returns the faults of CHECK and DEL.
func faultsOfAllVerbs() map[string]pluginFault {
	faults := pluginFaults()
	maps.DeleteFunc(faults, func(_ string, f pluginFault) bool { return f.onlyADD })
	return faults
}

//evidence:design/reliability C: CHECK of a held address
func TestPluginFaultInCHECK(t *testing.T) {
	eachCase(t, faultyPlugin, faultsOfAllVerbs(), func(t *testing.T, _ *stats, fault pluginFault) {
		f := newPluginFixture(t, "host-local", append(fault.flags(), "--verify-interval=0s")...)
		undo := f.inject(t, "CHECK", fault)
		f.TryAllocate(t, harness.Request{Owner: "other"}).WantError(t, http.StatusBadGateway, "the plugin could not verify")
		f.wantState(t, "other", "held")
		f.WaitConsistent(t)

		undo()
		f.wantOther(t)
		f.WantCounters(t, map[string]int64{"lost": 0})
	})
}

//evidence:design/reliability D: DEL of a release
func TestPluginFaultInDEL(t *testing.T) {
	eachCase(t, faultyPlugin, faultsOfAllVerbs(), func(t *testing.T, _ *stats, fault pluginFault) {
		f := newPluginFixture(t, "host-local", fault.flags()...)
		undo := f.inject(t, "DEL", fault)
		f.TryRelease(t, otherAddress).WantError(t, http.StatusInternalServerError, "retried in the background")
		f.wantState(t, "other", "releasing")

		undo()
		f.releaseOther(t)
		f.wantState(t, "other", none)
		f.WaitConsistent(t)
	})
}

//evidence:design/reliability DEL that fails ten times
func TestDELFailsTenTimes(t *testing.T) {
	oneCase(t, faultyPlugin)
	f := newPluginFixture(t, "host-local")
	before := f.plugin.CallCount(t, "DEL")
	f.plugin.SetScript(t, "DEL", `{"times":10,"error":{"code":11,"msg":"try again later"}}`)
	f.TryRelease(t, otherAddress).WantError(t, http.StatusInternalServerError, "try again later")
	f.wantState(t, "other", "releasing")

	f.releaseOther(t)
	if calls := f.plugin.CallCount(t, "DEL") - before; calls != 11 {
		t.Errorf("DEL was called %d times; want 10 failures and a success", calls)
	}
	f.wantState(t, "other", none)
	f.WaitConsistent(t)
	f.wantOther(t)
}

// pluginFixture is a daemon with the scripted plugin, and an owner "other" that holds an address.
type pluginFixture struct {
	*harness.Daemon
	node   *harness.Node
	plugin harness.Scripted
	// binary is the path of the plugin.
	binary string
}

// otherAddress is the address of the owner "other": the first one that the plugin allocates.
const otherAddress = "10.15.0.2"

// scriptedNode returns a node with the scripted plugin as a type whose leases have container IDs.
func scriptedNode(t *testing.T, pluginType string) (*harness.Node, harness.Scripted) {
	t.Helper()
	n := harness.NewNode(t)
	check.Must(t, os.RemoveAll(filepath.Join(n.BinDir, pluginType)))
	plugin := n.InstallServer(t, pluginType, nil).Scripted
	n.Store = func() ([]oracle.Lease, error) { return plugin.Leases("pods") }
	return n, plugin
}

// newPluginFixture starts a daemon over a plugin type: host-local, or one without a profile.
func newPluginFixture(t *testing.T, pluginType string, flags ...string) pluginFixture {
	t.Helper()
	n, plugin := scriptedNode(t, pluginType)
	f := pluginFixture{n.Start(t, flags...), n, plugin, filepath.Join(n.BinDir, pluginType)}
	f.wantOther(t)
	return f
}

// inject makes a verb fail, and returns a function that removes the fault.
func (f pluginFixture) inject(t *testing.T, verb string, fault pluginFault) (undo func()) {
	t.Helper()
	if fault.script != "" {
		f.plugin.SetScript(t, verb, fault.script)
		return func() { f.plugin.ClearScript(t, verb) }
	}
	away := f.binary + ".away"
	check.Must(t, os.Rename(f.binary, away))
	if fault.mode != 0 {
		check.Must(t, os.WriteFile(f.binary, []byte(foreignELF), fault.mode))
	}
	return func() { check.Must(t, os.Rename(away, f.binary)) }
}

// wantOther wants the owner "other" to hold its address.
func (f pluginFixture) wantOther(t *testing.T) {
	t.Helper()
	wantHeld(t, f.Daemon, "other", []string{otherAddress})
}

// wantState wants the record of an owner to have a state, which may be none.
func (f pluginFixture) wantState(t *testing.T, owner, want string) {
	t.Helper()
	got := none
	if a := f.Attachment(t, owner); a != nil {
		got = a.State
	}
	if got != want {
		t.Errorf("the record of %s is %s; want %s", owner, got, want)
	}
}

// releaseOther releases the address of "other" until that succeeds, without waiting for the
// retries in the background, which may be first.
func (f pluginFixture) releaseOther(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the release", func() error {
		if a := f.TryRelease(t, otherAddress); !slices.Contains([]int{http.StatusOK, http.StatusNotFound}, a.Status) {
			return fmt.Errorf("answered %s", a)
		}
		return nil
	})
}
