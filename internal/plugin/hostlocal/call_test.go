package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// callFixture is the directory of a network, and what changes it.
type callFixture struct {
	*testing.T
	Stores
	dir string
}

func newCallFixture(t *testing.T) *callFixture {
	f := &callFixture{T: t, dir: t.TempDir()}
	t.Cleanup(func() { closeStores(&f.Stores) })
	return f
}

func (f *callFixture) path(names ...string) string {
	return filepath.Join(append([]string{f.dir, testNetwork}, names...)...)
}

// config returns a configuration with the fields of ipam and, after them, further fields of the network.
func config(ipam, more string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"net","ipam":{"type":"host-local","dataDir":"DIR",%s}%s}`, ipam, more)
}

// oneRange is a range of five addresses, 10.1.0.2 to 10.1.0.6.
var oneRange = config(`"subnet":"10.1.0.0/29"`, "")

// do makes a call "VERB container-ID interface", and returns the addresses or the error.
func (f *callFixture) do(call, config string) string {
	words := strings.Fields(call)
	got, _ := embedded(f.Context(), &f.Stores, f.dir, request{command: words[0], id: words[1], ifname: words[2], config: config})
	return got.text()
}

// want makes a call, and wants its addresses or error.
func (f *callFixture) want(call, config, want string) {
	f.Helper()
	if got := f.do(call, config); got != want {
		f.Errorf("%s returned %q; want %q", call, got, want)
	}
}

// put writes files "name=content" into the directory of the network.
func (f *callFixture) put(all ...string) {
	f.Helper()
	check.Must(f, os.MkdirAll(f.path(), dirMode))
	for _, file := range all {
		name, content, _ := strings.Cut(file, "=")
		check.Must(f, os.WriteFile(f.path(name), []byte(content), leaseMode))
	}
}

// leases returns the files of addresses, as "name=content".
func (f *callFixture) leases() (all []string) {
	for name, content := range contents(f, f.dir, false) {
		if _, ok := Address(name); ok {
			all = append(all, name+"="+strings.Trim(content, `"`))
		}
	}
	slices.Sort(all)
	return all
}

func (f *callFixture) wantLeases(want ...string) {
	f.Helper()
	check.Equal(f, "leases", f.leases(), want)
}

// What host-local's own tests assert of the program (plugins/ipam/host-local, v1.10.0).
func TestCallFacts(t *testing.T) {
	two := config(`"ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.2.2.0/24"}],[{"subnet":"2001:db8:1::/64"}]]`, "")
	sets := `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/24"}]]`
	ips := func(ipam, list string) string { return config(ipam, `,"args":{"cni":{"ips":[`+list+`]}}`) }
	gc := func(valid ...string) string {
		var all []string
		for _, v := range valid {
			id, ifname, _ := strings.Cut(v, " ")
			all = append(all, fmt.Sprintf(`{"containerID":%q,"ifname":%q}`, id, ifname))
		}
		return config(`"subnet":"10.1.0.0/29"`, `,"cni.dev/valid-attachments":[`+strings.Join(all, ",")+`]`)
	}
	of := func(subnets ...string) string {
		return config(`"ranges":[[{"subnet":"`+strings.Join(subnets, `"},{"subnet":"`)+`"}]]`, "")
	}
	type step struct{ call, config, want string }
	const duplicate = "failed to allocate for range 0: 10.1.0.2 has been allocated to a, duplicate allocation is not allowed"
	for name, c := range map[string]struct {
		files  []string // before
		steps  []step
		leases []string // after
	}{
		"two families": {nil, []step{
			{"ADD a eth0", two, "10.1.2.2 2001:db8:1::2"},
			{"ADD b eth0", two, "10.1.2.3 2001:db8:1::3"},
			{"DEL a eth0", two, ""},
			{"ADD c eth0", two, "10.1.2.4 2001:db8:1::4"},
		}, []string{`10.1.2.3=b\r\neth0`, `10.1.2.4=c\r\neth0`, `2001:db8:1::3=b\r\neth0`, `2001:db8:1::4=c\r\neth0`}},
		"two interfaces of a container": {nil, []step{
			{"ADD a eth0", oneRange, "10.1.0.2"},
			{"ADD a eth1", oneRange, "10.1.0.3"},
			{"DEL a eth0", oneRange, ""},
			{"CHECK a eth1", oneRange, ""},
			{"CHECK a eth0", oneRange, "host-local: Failed to find address added by container a"},
		}, []string{`10.1.0.3=a\r\neth1`}},
		"repeated ADD": {nil, []step{
			{"ADD a eth0", oneRange, "10.1.0.2"},
			{"ADD a eth0", oneRange, duplicate},
			{"ADD b eth0", oneRange, "10.1.0.3"},
			{"ADD a eth0", oneRange, duplicate},
		}, []string{`10.1.0.2=a\r\neth0`, `10.1.0.3=b\r\neth0`}},
		"repeated ADD with several leases": {[]string{"10.1.0.9=a\r\neth0", "10.1.0.10=a", "10.1.0.11=a\r\neth0"}, []step{
			// The program reads the files in the order of their names.
			{"ADD a eth0", of("10.1.0.0/24"), strings.Replace(duplicate, "10.1.0.2", "10.1.0.10", 1)},
		}, []string{`10.1.0.10=a`, `10.1.0.11=a\r\neth0`, `10.1.0.9=a\r\neth0`}},
		"a requested address twice": {nil, []step{
			{"ADD a eth0", ips(`"subnet":"10.1.0.0/29"`, `"10.1.0.5","10.1.0.5"`), "10.1.0.5"},
			{"ADD b eth0", ips(`"subnet":"10.1.0.0/29"`, `"192.0.2.9","192.0.2.9"`), notRequested + "192.0.2.9"},
		}, []string{`10.1.0.5=a\r\neth0`}},
		"unknown container": {nil, []step{{"DEL a eth0", oneRange, ""}}, nil},
		"lease without an interface": {[]string{"10.1.0.2=a"}, []step{
			{"CHECK a eth0", oneRange, ""},
			{"ADD a eth0", oneRange, duplicate},
			{"DEL a eth0", oneRange, ""},
		}, nil},
		"a lease without an interface stays beside one with it": {[]string{"10.1.0.2=a", "10.1.0.3=a\r\neth0"}, []step{
			{"DEL a eth0", oneRange, ""},
		}, []string{`10.1.0.2=a`}},
		"white space": {[]string{"10.1.0.2= a\r\neth0\n"}, []step{
			{"CHECK a eth0", oneRange, ""},
			{"DEL a eth0", oneRange, ""},
		}, nil},
		"requested address": {nil, []step{
			{"ADD a eth0", ips(`"subnet":"10.1.0.0/29"`, `"10.1.0.5"`), "10.1.0.5"},
			{"ADD b eth0", ips(`"subnet":"10.1.0.0/29"`, `"10.1.0.5"`), "failed to allocate for range 0: requested IP address 10.1.0.5 is not available in range set 10.1.0.1-10.1.0.6"},
			{"ADD c eth0", ips(`"subnet":"10.1.0.0/29"`, `"10.1.0.1"`), "failed to allocate for range 0: requested ip 10.1.0.1 is subnet's gateway"},
		}, []string{`10.1.0.5=a\r\neth0`}},
		"requested addresses of two range sets": {nil, []step{
			{"ADD a eth0", ips(sets, `"10.1.2.88","10.1.3.77"`), "10.1.2.88 10.1.3.77"},
		}, []string{`10.1.2.88=a\r\neth0`, `10.1.3.77=a\r\neth0`}},
		"requested addresses of two families": {nil, []step{
			{"ADD a eth0", ips(`"ranges":[[{"subnet":"172.16.1.0/24"},{"subnet":"10.1.2.0/24"}],[{"subnet":"2001:db8:1::/48"}]]`, `"10.1.2.88","2001:db8:1::999"`), "10.1.2.88 2001:db8:1::999"},
		}, []string{`10.1.2.88=a\r\neth0`, `2001:db8:1::999=a\r\neth0`}},
		"a requested address that is not used": {nil, []step{
			{"ADD a eth0", ips(sets, `"10.1.2.88","10.1.2.77"`), notRequested + "10.1.2.77"},
		}, nil},
		"requested before the start and after the end": {nil, []step{
			{"ADD a eth0", ips(`"subnet":"10.1.0.0/29","rangeStart":"10.1.0.3"`, `"10.1.0.2"`), notRequested + "10.1.0.2"},
			{"ADD a eth0", ips(`"subnet":"10.1.0.0/29","rangeEnd":"10.1.0.3"`, `"10.1.0.4"`), notRequested + "10.1.0.4"},
		}, nil},
		"old versions have one address of each family": {nil, []step{
			{"ADD a eth0", strings.Replace(config(sets, ""), "1.1.0", "0.2.0", 1), "CNI version 0.2.0 does not support more than 1 address per family"},
		}, nil},

		"first address":                {nil, []step{{"ADD a eth0", of("10.0.0.0/29"), "10.0.0.2"}}, []string{`10.0.0.2=a\r\neth0`}},
		"first of IPv6":                {nil, []step{{"ADD a eth0", of("2001:db8:1::/64"), "2001:db8:1::2"}}, []string{`2001:db8:1::2=a\r\neth0`}},
		"only address":                 {nil, []step{{"ADD a eth0", of("10.0.0.0/30"), "10.0.0.2"}}, []string{`10.0.0.2=a\r\neth0`}},
		"after the last":               {[]string{"last_reserved_ip.0=10.0.0.5"}, []step{{"ADD a eth0", of("10.0.0.0/29"), "10.0.0.6"}}, []string{`10.0.0.6=a\r\neth0`}},
		"last outside":                 {[]string{"last_reserved_ip.0=10.0.0.128"}, []step{{"ADD a eth0", of("10.0.0.0/29"), "10.0.0.2"}}, []string{`10.0.0.2=a\r\neth0`}},
		"from the end to the first":    {[]string{"last_reserved_ip.0=10.0.0.6"}, []step{{"ADD a eth0", of("10.0.0.0/29"), "10.0.0.2"}}, []string{`10.0.0.2=a\r\neth0`}},
		"advance to the next range":    {[]string{"last_reserved_ip.0=10.0.0.2"}, []step{{"ADD a eth0", of("10.0.0.0/30", "10.0.1.0/30"), "10.0.1.2"}}, []string{`10.0.1.2=a\r\neth0`}},
		"from the last range to first": {[]string{"last_reserved_ip.0=10.0.2.2"}, []step{{"ADD a eth0", of("10.0.0.0/30", "10.0.1.0/30", "10.0.2.0/30"), "10.0.0.2"}}, []string{`10.0.0.2=a\r\neth0`}},
		"only the last is free": {
			[]string{"last_reserved_ip.0=10.1.0.3", "10.1.0.2=x", "10.1.0.4=x", "10.1.0.5=x", "10.1.0.6=x"},
			[]step{{"ADD a eth0", oneRange, "10.1.0.3"}, {"DEL a eth0", oneRange, ""}, {"DEL x eth0", oneRange, ""}},
			nil,
		},
		"all but the broadcast address": {nil, []step{
			{"ADD a eth0", oneRange, "10.1.0.2"},
			{"ADD b eth0", oneRange, "10.1.0.3"},
			{"ADD c eth0", oneRange, "10.1.0.4"},
			{"ADD d eth0", oneRange, "10.1.0.5"},
			{"ADD e eth0", oneRange, "10.1.0.6"},
			{"ADD f eth0", oneRange, "failed to allocate for range 0: no IP addresses available in range set: 10.1.0.1-10.1.0.6"},
		}, []string{`10.1.0.2=a\r\neth0`, `10.1.0.3=b\r\neth0`, `10.1.0.4=c\r\neth0`, `10.1.0.5=d\r\neth0`, `10.1.0.6=e\r\neth0`}},
		"a full second range set takes the address of the first": {[]string{"10.1.3.2=x"}, []step{
			{"ADD a eth0", config(`"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.3.0/30"}]]`, ""), "failed to allocate for range 1: no IP addresses available in range set: 10.1.3.1-10.1.3.2"},
		}, []string{`10.1.3.2=x`}},

		"GC keeps valid attachments": {[]string{"10.1.0.2=a\r\neth0", "10.1.0.3=b\r\neth0"}, []step{{"GC - -", gc("a eth0"), ""}}, []string{`10.1.0.2=a\r\neth0`}},
		"GC of another interface":    {[]string{"10.1.0.2=a\r\neth0", "10.1.0.3=a\r\neth1"}, []step{{"GC - -", gc("a eth0"), ""}}, []string{`10.1.0.2=a\r\neth0`}},
		"GC of all":                  {[]string{"10.1.0.2=a\r\neth0", "10.1.0.3=b"}, []step{{"GC - -", gc(), ""}, {"ADD c eth0", oneRange, "10.1.0.2"}}, []string{`10.1.0.2=c\r\neth0`}},
		"GC without an interface":    {[]string{"10.1.0.2=a", "10.1.0.3=b"}, []step{{"GC - -", gc("a eth0"), ""}}, []string{`10.1.0.2=a`}},
		"GC of addresses only":       {[]string{"lock=", "last_reserved_ip.0=10.1.0.2", "note=", "10.1.0.2=a\r\neth0"}, []step{{"GC - -", gc(), ""}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCallFixture(t)
			f.put(c.files...)
			for _, s := range c.steps {
				f.want(s.call, s.config, s.want)
			}
			f.wantLeases(c.leases...)
			for _, file := range c.files {
				if name, _, _ := strings.Cut(file, "="); name == "note" || name == lockFile {
					_, err := os.Stat(f.path(name))
					check.NoError(t, err)
				}
			}
		})
	}
}

// lockStore holds the lock of the store as another program.
func (f *callFixture) lockStore() (unlock func()) {
	f.Helper()
	f.put("lock=")
	file, err := os.Open(f.path(lockFile))
	check.Must(f, err)
	check.Must(f, unix.Flock(int(file.Fd()), unix.LOCK_EX))
	return func() { check.Must(f, file.Close()) }
}

func wantNotStarted(t *testing.T, err error, texts ...string) {
	t.Helper()
	check.Error(t, err, texts...)
	if _, ok := errors.AsType[NotStartedError](err); !ok {
		t.Errorf("got %T; want NotStartedError", err)
	}
}

func (f *callFixture) call(ctx context.Context, command, id string) error {
	_, err := embedded(ctx, &f.Stores, f.dir, request{command: command, id: id, ifname: "eth0", config: oneRange})
	return err
}

// A call whose time ends while it waits for another program, or for another call, does nothing then or later.
func TestCallLocked(t *testing.T) {
	f := newCallFixture(t)
	f.want("ADD kept eth0", oneRange, "10.1.0.2")
	unlock := f.lockStore()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	short, cancel := context.WithTimeout(t.Context(), 3*lockPollInterval)
	defer cancel()
	wantNotStarted(t, f.call(short, "DEL", "kept"), "held by another process", f.path(lockFile))
	wantNotStarted(t, f.call(ended, "ADD", "late"), "context canceled")

	var waiting sync.WaitGroup
	waiting.Go(func() { check.NoError(t, f.call(t.Context(), "ADD", "patient")) })
	n := f.network(f.path())
	for n.changing.TryLock() { // until the call above waits for the lock
		n.changing.Unlock()
		runtime.Gosched()
	}
	wantNotStarted(t, f.call(short, "DEL", "kept"), "context deadline exceeded")
	f.wantLeases(`10.1.0.2=kept\r\neth0`)
	unlock()
	waiting.Wait()
	f.want("CHECK kept eth0", oneRange, "")
	f.wantLeases(`10.1.0.2=kept\r\neth0`, `10.1.0.3=patient\r\neth0`)
}

// Directories are made with the modes of host-local, and nothing in place of what is there.
func TestCallDirectory(t *testing.T) {
	f := newCallFixture(t)
	top := f.dir
	f.dir = filepath.Join(top, "a", "b")
	f.want("ADD a eth0", oneRange, "10.1.0.2")
	for name, mode := range map[string]fs.FileMode{"a": 0o755, "a/b": 0o755, "a/b/net": 0o755, "a/b/net/lock": lockMode, "a/b/net/10.1.0.2": leaseMode} {
		info, err := os.Stat(filepath.Join(top, name))
		check.Must(t, err)
		check.Equal(t, name, info.Mode().Perm(), mode)
	}

	check.Must(t, os.MkdirAll(filepath.Join(top, "link"), dirMode))
	check.Must(t, os.Symlink(f.path(), filepath.Join(top, "link", testNetwork)))
	check.Must(t, os.WriteFile(filepath.Join(top, "file"), nil, leaseMode))
	check.Must(t, os.MkdirAll(filepath.Join(top, "dangling"), dirMode))
	check.Must(t, os.Symlink("none", filepath.Join(top, "dangling", testNetwork)))
	check.Must(t, os.MkdirAll(filepath.Join(top, "fifo"), dirMode))
	check.Must(t, unix.Mkfifo(filepath.Join(top, "fifo", testNetwork), 0o600))
	for name, text := range map[string]string{"link": "symbolic link", "file": "not a directory", "dangling": "no such file", "fifo": "not a directory"} {
		f.dir = filepath.Join(top, name)
		for _, command := range []string{"ADD", "DEL", "CHECK", "GC"} {
			wantNotStarted(t, f.call(t.Context(), command, "a"), text)
		}
	}
	f.dir = filepath.Join(top, "a", "b")
	f.wantLeases(`10.1.0.2=a\r\neth0`)

	for _, c := range []string{strings.Replace(oneRange, dirMark, "relative", 1), strings.Replace(oneRange, `"net"`, `"../net"`, 1), strings.Replace(oneRange, `"net"`, `""`, 1)} {
		if got := f.do("ADD b eth0", c); !strings.Contains(got, "expected") {
			t.Errorf("ADD with %s returned %q", c, got)
		}
	}
}

// Another directory of the same name is another store.
func TestCallReplacedDirectory(t *testing.T) {
	f := newCallFixture(t)
	f.want("ADD a eth0", oneRange, "10.1.0.2")
	f.want("ADD b eth0", oneRange, "10.1.0.3")
	aside := f.path() + ".aside"
	check.Must(t, os.Rename(f.path(), aside))
	f.want("CHECK a eth0", oneRange, "host-local: Failed to find address added by container a")
	f.want("ADD b eth0", oneRange, "10.1.0.2")
	check.Must(t, os.RemoveAll(f.path()))
	check.Must(t, os.Rename(aside, f.path()))
	f.want("CHECK a eth0", oneRange, "")
	f.want("ADD c eth0", oneRange, "10.1.0.4")
	check.Must(t, os.RemoveAll(f.path()))
	f.want("DEL a eth0", oneRange, "")
	f.want("ADD c eth0", oneRange, "10.1.0.2")
	f.wantLeases(`10.1.0.2=c\r\neth0`)
}

// A panic is an unknown outcome, and the next calls work.
func TestCallPanic(t *testing.T) {
	f := newCallFixture(t)
	for range 2 {
		_, err := f.change(t.Context(), f.path(), func(*locked) (*current.Result, error) { panic("no verb") })
		check.Error(t, err, "panic")
		if _, ok := errors.AsType[UnknownError](err); !ok {
			t.Errorf("got %T; want UnknownError", err)
		}
		f.do("ADD a eth0", oneRange)
	}
	f.lockStore()()
	f.wantLeases(`10.1.0.2=a\r\neth0`)
}

// configurations that make host-local panic.
var panics = []string{
	config(`"subnet":"10.1.0.0/29"`, `,"args":{"cni":{"ips":[null]}}`),
	config(`"subnet":"10.1.0.0/29"`, `,"runtimeConfig":{"ips":[null]}`),
}

// A configuration with which host-local panics is refused, and changes nothing.
func TestCallPanickingConfig(t *testing.T) {
	for _, c := range panics {
		f := newCallFixture(t)
		_, err := f.Call(t.Context(), "ADD", Args{ContainerID: "a", IfName: "eth0", Config: []byte(strings.ReplaceAll(c, dirMark, f.dir))})
		check.Error(t, err)
		if _, ok := errors.AsType[UnknownError](err); ok {
			t.Errorf("%s: got UnknownError (%v); nothing was started", c, err)
		}
		func() {
			defer func() {
				if cause := recover(); cause != nil {
					t.Errorf("CheckConfig panics for %s: %v", c, cause)
				}
			}()
			check.Error(t, CheckConfig([]byte(c)))
		}()
	}
}

// past is a context whose deadline has passed, and which has not ended yet.
type past struct{ context.Context }

func (past) Deadline() (time.Time, bool) { return time.Unix(0, 0), true }

// The search for a free address in a large range ends with the time of the call.
func TestCallDeadline(t *testing.T) {
	f := newCallFixture(t)
	large := config(`"ranges":[[{"subnet":"10.1.0.0/29"}],[{"subnet":"fd00::/64"}]]`, "")
	_, err := embedded(past{t.Context()}, &f.Stores, f.dir, request{command: "ADD", id: "a", ifname: "eth0", config: large})
	check.Error(t, err, "time limit")
	f.wantLeases()
	f.want("ADD a eth0", large, "10.1.0.2 fd00::2")
}

func TestCallResolvConf(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), leaseMode))
	}
	write("good", "nameserver 192.0.2.3")
	write("huge", strings.Repeat("search a\n", MaxResolvConf/9+1))
	check.Must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	check.Must(t, os.Symlink("good", filepath.Join(dir, "link")))
	check.Must(t, os.Mkdir(filepath.Join(dir, "directory"), dirMode))
	for name, text := range map[string]string{
		"good": "", "link": "", "missing": "no such file or directory", "huge": "larger than", "fifo": "not a regular file", "directory": "not a regular file",
	} {
		f := newCallFixture(t)
		path := filepath.Join(dir, name)
		c := config(fmt.Sprintf(`"subnet":"10.1.0.0/29","resolvConf":%q`, path), "")
		result, err := f.Call(t.Context(), "ADD", Args{ContainerID: "a", IfName: "eth0", Config: []byte(strings.ReplaceAll(c, dirMark, f.dir))})
		if text == "" {
			check.Must(t, err)
			check.Equal(t, name, result.DNS.Nameservers, []string{"192.0.2.3"})
			continue
		}
		check.Error(t, err, path, text)
		check.Absent(t, f.path())
		f.want("DEL a eth0", c, "")
	}
}

// Concurrent calls of one process, over several Stores, give each container its address.
func TestCallConcurrency(t *testing.T) {
	f := newCallFixture(t)
	stores := make([]Stores, 3)
	defer closeStores(&stores[0], &stores[1], &stores[2])
	c := config(`"ranges":[[{"subnet":"10.1.0.0/26"}],[{"subnet":"fd00::/122"}]]`, "")
	const callers = 32
	held := claims{owner: map[netip.Addr]string{}}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			r := request{id: fmt.Sprint("pod-", i), ifname: "eth0", config: c}
			var ips []netip.Addr
			for _, r.command = range []string{"ADD", "CHECK", "DEL", "ADD", "CHECK"} {
				if r.command == "DEL" {
					held.unclaim(ips)
				}
				got, err := embedded(t.Context(), &stores[i%3], f.dir, r)
				check.NoError(t, err)
				switch r.command {
				case "ADD":
					ips = resultIPs(got)
					held.claim(t, r.id, ips)
				case "CHECK":
					found, err := stores[(i+1)%3].Find(Store{Dir: f.path()}, r.id, r.ifname)
					check.NoError(t, err)
					check.Equal(t, "lookup", found, ips)
				}
			}
		})
	}
	all.Wait()
	check.Equal(t, "number of leases", len(f.leases()), 2*callers)
}

// An excluded address is skipped as if another container had it, but returned if it is requested.
func TestCallExclude(t *testing.T) {
	f := newCallFixture(t)
	add := func(id, config string, exclude ...string) string {
		a := Args{ContainerID: id, IfName: "eth0", Config: []byte(strings.ReplaceAll(config, "DIR", f.dir))}
		for _, text := range exclude {
			a.Exclude = append(a.Exclude, netip.MustParsePrefix(text))
		}
		result, err := f.Call(f.Context(), "ADD", a)
		if err != nil {
			return err.Error()
		}
		return result.IPs[0].Address.String()
	}
	requests := config(`"subnet":"10.1.0.0/29"`, `,"args":{"cni":{"ips":["10.1.0.2"]}}`)
	check.Equal(t, "beside an exclusion", add("a", oneRange, "10.1.0.2/31"), "10.1.0.4/29")
	check.Equal(t, "at its end", add("b", oneRange, "10.1.0.5/32", "10.1.0.6/32", "10.1.0.2/32"), "10.1.0.3/29")
	check.Equal(t, "of all", add("c", oneRange, "10.1.0.0/29"), "failed to allocate for range 0: no IP addresses available in range set: 10.1.0.1-10.1.0.6")
	check.Equal(t, "requested", add("d", requests, "10.1.0.2/32"), "10.1.0.2/29")
	check.Equal(t, "without one", add("e", oneRange), "10.1.0.5/29")
	const held = "failed to allocate for range 0: 10.1.0.4 has been allocated to a, duplicate allocation is not allowed"
	check.Equal(t, "of one that it has", add("a", oneRange, "10.1.0.4/32"), held)
	f.wantLeases("10.1.0.2=d\\r\\neth0", "10.1.0.3=b\\r\\neth0", "10.1.0.4=a\\r\\neth0", "10.1.0.5=e\\r\\neth0")

	large := config(`"ranges":[[{"subnet":"fd00::/64","rangeEnd":"fd00::8000:0:0:1"},{"subnet":"fd01::/64"}]]`, "")
	for id, want := range []string{"fd00::8000:0:0:0/64", "fd00::8000:0:0:1/64", "fd01::2/64"} {
		check.Equal(t, "beside a large exclusion", add(fmt.Sprint(id), large, "fd00::1/65", "10.0.0.0/8"), want)
	}
}
