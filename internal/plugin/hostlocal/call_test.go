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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/scenario"
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

// TestCallFacts runs the scenarios of testdata/facts.txt. A call is "VERB container-ID interface -> addresses or error"; the
// other lines write a file, or set the configuration of the next calls.
func TestCallFacts(t *testing.T) {
	scenario.Each(t, "testdata/facts.txt", func(t *testing.T, lines []string) {
		f := newCallFixture(t)
		f.put()
		version, ipam, more := "1.1.0", `"subnet":"10.1.0.0/29"`, ""
		var leases []string
		for _, line := range lines {
			command, rest, _ := strings.Cut(line, " ")
			switch words := strings.Fields(rest); command {
			case "file": // NAME=content
				file, err := strconv.Unquote(`"` + rest + `"`)
				check.Must(t, err)
				f.put(file)
			case "touch":
			case "version":
				version = rest
			case "ipam":
				ipam = rest
			case "subnets": // of one range set
				ipam = `"ranges":[[{"subnet":"` + strings.Join(words, `"},{"subnet":"`) + `"}]]`
			case "request":
				more = `,"args":{"cni":{"ips":["` + strings.Join(words, `","`) + `"]}}`
			case "valid": // attachments of eth0
				var all []string
				for _, id := range words {
					all = append(all, fmt.Sprintf(`{"containerID":%q,"ifname":"eth0"}`, id))
				}
				more = `,"cni.dev/valid-attachments":[` + strings.Join(all, ",") + `]`
			case "kept":
				for _, name := range words {
					_, err := os.Stat(f.path(name))
					check.NoError(t, err)
				}
			case "leases":
				leases = words
			default:
				call, want, _ := strings.Cut(line, "->")
				f.want(call, strings.Replace(config(ipam, more), "1.1.0", version, 1), strings.TrimSpace(want))
				more = ""
			}
		}
		f.wantLeases(leases...)
	})
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
