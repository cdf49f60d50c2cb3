package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/internal/process"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/scenario"
)

// script runs a scenario with one plugin.
type script struct {
	*testing.T
	*fixture
	// target is what calls are about, and err the last error.
	target call.Call
	err    error
	// stored is the result that is in the store, raw the last one, and owner the owner of new invocations.
	stored call.Result
	raw    json.RawMessage
	owner  string
}

// TestScenarios runs the scenarios of testdata/*.txt, which package scenario reads. The first line makes the plugin: "fake
// [TYPE]" a fake of a type, "real [VERSION]" the real host-local of two ranges, or of a later line "ipam". A call and its
// addresses, or the outcome of its error with a text in it:
//
//	new id                                an invocation, of which the following calls are
//	ADD -> 10.1.0.2/24 via 10.1.0.1
//	DEL -> refused code 999
//
// The other words are in prepare, and in checks, which compare a text.
//
//evidence:operate/security a plugin type or a record that names another path
func TestScenarios(t *testing.T) {
	scenario.Each(t, "testdata/*.txt", func(t *testing.T, lines []string) {
		t.Parallel()
		kind, name, _ := strings.Cut(lines[0], " ")
		s := &script{T: t, owner: "owner"}
		switch {
		case kind == "real":
			s.fixture = newRealOf(t, name, dualStack)
		case name == "":
			s.fixture = newFake(t)
		default:
			s.fixture = imitate(t, name)
		}
		for _, line := range lines[1:] {
			if s.do(line); t.Failed() {
				t.Fatalf("after %s", line)
			}
		}
	})
}

func (s *script) do(line string) {
	s.Helper()
	text, want, isAnswer := strings.Cut(line, "->")
	want = strings.ReplaceAll(strings.TrimSpace(want), "DIR", s.dir)
	name, args, _ := strings.Cut(strings.TrimSpace(text), " ")
	do, show := prepare[name], checks[name]
	switch {
	case do != nil:
		do(s, args)
	case name == "lookup":
		got, err := s.runner.Lookup(s.Context(), s.target.Invocation)
		s.wantShown(ipsOf(got), err, want)
	case name == "holds":
		held, err := s.runner.Holds(s.target.Invocation, addrs(strings.Fields(args)...))
		s.wantShown(fmt.Sprint(held), err, want)
	case isAnswer && show != nil:
		check.Equal(s, text, show(s, args), want)
	case name == "new":
		var inv call.Invocation
		inv, s.err = s.runner.NewInvocation(s.Context(), s.network, args, s.owner)
		s.wantError(want)
		s.target = call.Call{Invocation: inv}
	case name == "CHECK-CONFIG":
		s.err = s.runner.CheckConfig(s.Context(), s.network, s.target.Invocation)
		s.wantError(want)
	case name == "CHECK-ADDRESSES":
		if s.err = s.runner.CheckAddresses(s.network, s.target.Invocation); s.err != nil {
			wantText(s.T, s.err, `/net.d/05.conflist: network "net": `)
		}
		s.wantError(want)
	case name == "ADD" && strings.Contains(want, "/"):
		s.raw = s.wantAdd(s.target, want).Raw
	case slices.Contains([]string{"ADD", "DEL", "CHECK", "STATUS"}, name):
		if s.err = s.run(name, s.target); s.err != nil {
			want += "; plugin " + s.target.Plugin + " " + name
		}
		s.wantError(want)
	default:
		s.Fatalf("unknown command %q", line)
	}
}

// wantError wants no error, or one whose outcome and texts are wanted: "OUTCOME text; text". It is about the target.
func (s *script) wantError(want string) {
	s.Helper()
	if want == "" {
		check.NoError(s, s.err)
		return
	}
	outcome, texts, _ := strings.Cut(want, " ")
	if outcome != "error" {
		e := wantError(s.T, s.err, call.Outcome(outcome), "")
		if len(e.Stderr) > process.MaxStderr || len(e.Msg) > maxMessage {
			s.Errorf("got %d bytes of stderr and %d of message, want at most %d and %d",
				len(e.Stderr), len(e.Msg), process.MaxStderr, maxMessage)
		}
	}
	wantText(s.T, s.err, strings.Split(texts, "; ")...)
}

// wantShown compares a value, or wants an error of a lookup.
func (s *script) wantShown(got string, err error, want string) {
	s.Helper()
	text, isError := strings.CutPrefix(want, "error ")
	if isError {
		wantText(s.T, err, "lookup of container ID", text)
		return
	}
	check.NoError(s, err)
	check.Equal(s, "lookup", got, want)
}

// prepare are commands without an answer.
var prepare = map[string]func(s *script, args string){
	"ipam":         func(s *script, args string) { s.configure(args, `{}`) },
	"capabilities": func(s *script, args string) { s.configure(`{"type":"scripted",`+twoRanges+`}`, args) },
	"network":      func(s *script, args string) { s.fixture.network = networkOf("net", args) },
	// beside installs the fake under other names, and files that a configuration can name.
	"beside": func(s *script, args string) {
		for _, other := range strings.Fields(args) {
			check.Must(s, os.Symlink(filepath.Join(s.bin, "host-local"), filepath.Join(s.bin, other)))
		}
		s.write("resolv.conf", "nameserver 10.0.0.1\n")
		s.write("large", strings.Repeat("#", hostlocal.MaxResolvConf+1))
	},
	"for-containers": func(s *script, args string) {
		s.network.File, s.network.ServesContainers = "/net.d/05.conflist", args == "yes"
	},
	"network-name": func(s *script, args string) { s.network.Name = args },
	"owner":        func(s *script, args string) { s.owner = args },
	"profile": func(s *script, args string) {
		s.setProfile(func(p *profile.Profile) { check.Must(s, json.Unmarshal([]byte(args), p)) })
	},
	"options": func(s *script, args string) {
		s.start(func(o *Options) { check.Must(s, json.Unmarshal([]byte(args), o)) })
	},
	"timeout": func(s *script, args string) {
		d, err := time.ParseDuration(args)
		check.Must(s, err)
		s.start(func(o *Options) { o.Timeout = d })
	},
	"restart": func(s *script, _ string) { s.start() },
	"script": func(s *script, args string) {
		verb, text, _ := strings.Cut(args, " ")
		s.script(verb, text)
	},
	"record": func(s *script, args string) { check.Must(s, json.Unmarshal([]byte(args), &s.target.Invocation)) },
	"binary": func(s *script, args string) { s.target.Binary = filepath.Join(s.bin, args) },
	"of":     func(s *script, args string) { s.target.ContainerID = args },
	"previous": func(s *script, args string) { // the last result, or another one
		s.target.PrevResult = s.raw
		if args != "" {
			s.target.PrevResult = json.RawMessage(args)
		}
	},
	"touch": func(*script, string) {},
	"request": func(s *script, args string) {
		s.target.Requested = nil
		for _, text := range strings.Fields(args) {
			if !strings.Contains(text, "/") {
				s.target.Requested = append(s.target.Requested, request(text)...)
				continue
			}
			s.target.Requested = append(s.target.Requested, netip.MustParsePrefix(text))
		}
	},
	"lease": func(s *script, args string) { // NAME content
		name, content, _ := strings.Cut(args, " ")
		text, err := strconv.Unquote(`"` + content + `"`)
		check.Must(s, err)
		s.writeLease(name, text)
	},
	"large-lease":       func(s *script, name string) { s.writeLease(name, strings.Repeat(" ", 8<<10)+"mine\r\neth0") },
	"file-as-lease-dir": func(s *script, _ string) { check.Must(s, os.WriteFile(s.leaseDir(), nil, 0o600)) },
	"GC": func(s *script, args string) { // of the listed containers
		var valid []call.Attachment
		for _, id := range strings.Fields(args) {
			valid = append(valid, call.Attachment{ContainerID: id, IfName: "eth0"})
		}
		s.gc(s.target, valid...)
	},
	"in-store": func(s *script, _ string) { s.stored = s.addInStore(s.target) },
	"same-lookup": func(s *script, _ string) { // as that ADD, which CHECK and DEL get
		got := s.wantLookup(s.target.Invocation, ipsOf(s.stored))
		check.True(s, sameJSON(s.T, got.Raw, s.stored.Raw), "got %s, want %s", got.Raw, s.stored.Raw)
		s.wantHolds(s.target.Invocation, call.Addrs(s.stored.Addresses), true)
		s.target.PrevResult = got.Raw
	},
	"gone": func(s *script, _ string) {
		s.wantHolds(s.target.Invocation, call.Addrs(s.stored.Addresses), false)
		s.wantLookup(s.target.Invocation, "")
	},
}

// checks return what is compared with the answer.
var checks = map[string]func(s *script, args string) string{
	"lost":  func(s *script, _ string) string { return fmt.Sprint(call.IsLost(s.target.Invocation, s.err)) },
	"calls": func(s *script, verb string) string { return fmt.Sprint(len(s.calls(verb))) },
	"no-call": func(s *script, _ string) string {
		_, err := os.Stat(filepath.Join(s.dir, "calls.log"))
		return fmt.Sprint(errors.Is(err, fs.ErrNotExist))
	},
	"stdin": func(s *script, args string) string {
		verb, key, _ := strings.Cut(args, " ")
		return s.stdin(verb, key)
	},
	"env": func(s *script, args string) string {
		verb, key, _ := strings.Cut(args, " ")
		return s.lastCall(verb).Env[key]
	},
	"envs": func(s *script, args string) string { // of all calls
		verb, key, _ := strings.Cut(args, " ")
		var all []string
		for _, c := range s.calls(verb) {
			all = append(all, strings.ReplaceAll(c.Env[key], s.bin, "BIN"))
		}
		return strings.Join(all, " ")
	},
	"held": func(s *script, _ string) string {
		if _, err := os.Stat(filepath.Join(s.dir, "store")); errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		return check.Names(s, filepath.Join(s.dir, "store"))
	},
	"leases": func(s *script, _ string) string {
		if _, err := os.Stat(s.leaseDir()); errors.Is(err, fs.ErrNotExist) {
			return "no directory"
		}
		return strings.Join(slices.DeleteFunc(strings.Fields(check.Names(s, s.leaseDir())), func(name string) bool {
			_, err := netip.ParseAddr(name)
			return err != nil
		}), " ")
	},
	"result": func(s *script, key string) string {
		var fields map[string]json.RawMessage
		check.Must(s, json.Unmarshal(s.raw, &fields))
		return string(fields[key])
	},
	"version": func(s *script, _ string) string {
		inv := s.target.Invocation
		return fmt.Sprintf("%s check=%t status=%t", inv.CNIVersion, inv.HasCheck(), inv.HasStatus())
	},
	"config": func(s *script, key string) string {
		var fields map[string]json.RawMessage
		check.Must(s, json.Unmarshal(s.target.Config, &fields))
		return string(fields[key])
	},
	"range": func(s *script, args string) string {
		return string(s.runner.Range(s.network, addrs(strings.Fields(args)...)))
	},
	"netns": func(s *script, _ string) string { return s.target.NetNS },
}
