package hostlocal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// refusedByNewest are errors of v1.10.0 for configurations that older versions accept.
var refusedByNewest = []string{"gateway ", " is after RangeEnd "}

// acceptedByOlder reports whether a configuration is refused, but not by an older version.
func acceptedByOlder(config []byte) bool {
	err := CheckConfig(config)
	return err != nil && slices.ContainsFunc(refusedByNewest, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// Call equals the programs: in replies and in what the directory has after each step of a history. It equals them
// alone, in turns with the program, and in a directory that cannot be watched.
func TestCallIsHostLocal(t *testing.T) {
	t.Parallel()
	all := programs(t)
	unwatched := t.TempDir()
	if err := unix.Mount("ramfs", unwatched, "ramfs", 0, ""); err == nil {
		t.Cleanup(func() { check.Must(t, unix.Unmount(unwatched, unix.MNT_DETACH)) })
	} else {
		t.Logf("without a directory that cannot be watched: %v", err)
	}
	run := 0
	dirs := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		run++
		h := history{T: rt, program: rapid.SampledFrom(all).Draw(rt, "program"), stores: &Stores{}}
		for _, parent := range []string{dirs, dirs, dirs, unwatched} {
			h.dirs = append(h.dirs, filepath.Join(parent, fmt.Sprint(run, "-", len(h.dirs))))
		}
		defer func() {
			closeStores(h.stores)
			for _, dir := range h.dirs {
				check.Must(t, os.RemoveAll(dir))
			}
		}()
		h.drawNetwork()
		for range rapid.IntRange(1, 16).Draw(rt, "steps") {
			h.step(t)
		}
	})
}

// history is one history of calls in several directories: of the program, of Call, of both, and of Call.
type history struct {
	*rapid.T
	program program
	stores  *Stores
	dirs    []string

	cniVersion string
	ipam       map[string]any
	// sets has the subnets of each range set.
	sets [][]netip.Prefix
}

// oneIn draws whether a thing with a chance happens. Bounds of a range are drawn more often.
func (h *history) oneIn(n int, label string) bool {
	return rapid.IntRange(0, n-1).Draw(h.T, label) == n/2
}

// subnet draws a subnet, the number of which no other has. A few overlap.
func (h *history) subnet(is6 bool) netip.Prefix {
	n := 0
	for _, set := range h.sets {
		n += len(set)
	}
	if h.oneIn(100, "overlap") {
		n = 0
	}
	bits := rapid.SampledFrom([]int{29, 30, 28, 16}).Draw(h.T, "bits")
	if h.oneIn(100, "too small") {
		bits = 31
	}
	if is6 {
		return netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("fd00:%d::", n)), bits+96)
	}
	return netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("10.%d.0.0", n)), bits)
}

// in draws one of the first addresses of a subnet, or rarely one outside.
func (h *history) in(p netip.Prefix, label string) string {
	last := min(12, 1<<(p.Addr().BitLen()-p.Bits())-1)
	ip := p.Addr()
	for range rapid.IntRange(0, last).Draw(h.T, label) {
		ip = ip.Next()
	}
	if h.oneIn(120, "outside") {
		ip = p.Addr().Prev()
	}
	return ip.String()
}

func (h *history) drawRange(p netip.Prefix) map[string]any {
	r := map[string]any{"subnet": p.String()}
	for _, field := range []string{"rangeStart", "rangeEnd", "gateway"} {
		if h.oneIn(4, field) {
			r[field] = h.in(p, field)
		}
	}
	return r
}

// drawSet draws a range set.
func (h *history) drawSet() (set []any) {
	is6 := rapid.Bool().Draw(h.T, "IPv6")
	h.sets = append(h.sets, nil)
	at := &h.sets[len(h.sets)-1]
	for range rapid.IntRange(1, 3).Draw(h.T, "ranges") {
		p := h.subnet(is6 != h.oneIn(120, "other family"))
		*at = append(*at, p)
		set = append(set, h.drawRange(p))
	}
	return set
}

func (h *history) drawNetwork() {
	versions := []string{"0.3.1", "0.4.0", "1.0.0", "0.3.0", "0.2.0"}
	if h.program.version >= "v1.9" || h.program.version == newest {
		versions = append(versions, "1.1.0", "1.1.0", "1.1.0")
	}
	h.cniVersion = rapid.SampledFrom(versions).Draw(h.T, "cniVersion")
	h.drawIPAM()
}

func (h *history) drawIPAM() {
	h.sets, h.ipam = nil, map[string]any{"type": hostLocal, "dataDir": dirMark}
	if h.oneIn(4, "single range") {
		p := h.subnet(false)
		h.sets = [][]netip.Prefix{{p}}
		for field, value := range h.drawRange(p) {
			h.ipam[field] = value
		}
	}
	var sets []any
	for range rapid.IntRange(1-len(h.sets), 3).Draw(h.T, "range sets") {
		sets = append(sets, h.drawSet())
	}
	h.ipam["ranges"] = sets
	if h.oneIn(3, "routes") {
		h.ipam["routes"] = []map[string]string{{"dst": "0.0.0.0/0"}, {"dst": "fd00::/8", "gw": "fd00::1"}, {"dst": "10.0.0.0/8", "gw": "10.0.0.1"}}
	}
	if h.oneIn(6, "resolvConf") {
		h.ipam["resolvConf"] = rapid.SampledFrom([]string{"testdata/resolv.conf", "testdata/none"}).Draw(h.T, "resolv.conf")
	}
}

// drawRequest draws a call, and the addresses that it requests.
func (h *history) drawRequest() request {
	r := request{
		command: rapid.SampledFrom([]string{"ADD", "ADD", "ADD", "ADD", "DEL", "DEL", "CHECK", "GC"}).Draw(h.T, "command"),
		id:      h.drawID(), ifname: h.drawIfName(),
	}
	if r.command == "GC" && (h.cniVersion != "1.1.0" || h.program.version != newest) {
		r.command = "CHECK"
	}
	if r.command == "CHECK" && h.cniVersion < "0.4.0" {
		r.command = "DEL"
	}
	before := h.sets
	defer func() { h.sets = before }()
	config := map[string]any{"cniVersion": h.cniVersion, "name": testNetwork, "ipam": h.ipam}
	runtime := map[string]any{}
	if h.oneIn(20, "ipRanges") {
		runtime["ipRanges"] = []any{h.drawSet()}
	}
	var cniIPs, runtimeIPs []string
	for _, ip := range h.drawRequested() {
		switch way := rapid.IntRange(0, 2).Draw(h.T, "way"); {
		case way == 0 && r.args == "":
			r.args = "IgnoreUnknown=1;K8S_POD_NAME=pod;IP=" + ip
		case way == 1:
			cniIPs = append(cniIPs, ip)
		default:
			runtimeIPs = append(runtimeIPs, ip)
		}
	}
	if cniIPs != nil {
		config["args"] = map[string]any{"cni": map[string]any{"ips": cniIPs}}
	}
	if runtimeIPs != nil {
		runtime["ips"] = runtimeIPs
	}
	config["runtimeConfig"] = runtime
	if r.command == "GC" {
		var valid []map[string]string
		for range rapid.IntRange(0, 4).Draw(h.T, "valid attachments") {
			valid = append(valid, map[string]string{"containerID": h.drawID(), "ifname": h.drawIfName()})
		}
		config["cni.dev/valid-attachments"] = valid
	}
	text, err := json.Marshal(config)
	if err != nil {
		h.Fatal(err)
	}
	r.config = string(text)
	return r
}

// drawRequested draws at most one address of each range set, of which the program would take a random one, and others.
func (h *history) drawRequested() (ips []string) {
	for _, set := range h.sets {
		if h.oneIn(6, "requested") {
			ip := h.in(rapid.SampledFrom(set).Draw(h.T, "range"), "address")
			ips = append(ips, ip+rapid.SampledFrom([]string{"", "/24"}).Draw(h.T, "prefix length"))
		}
	}
	if h.oneIn(25, "address outside") {
		ips = append(ips, "192.0.2.9")
	}
	if len(ips) > 0 && h.oneIn(6, "twice") {
		ips = append(ips, ips[len(ips)-1])
	}
	return ips
}

func (h *history) drawID() string {
	return rapid.SampledFrom([]string{"pod-0", "pod-1", "pod-2", "pod"}).Draw(h.T, "container ID")
}

func (h *history) drawIfName() string {
	return rapid.SampledFrom([]string{"eth0", "eth0", "eth", "net1"}).Draw(h.T, "interface")
}

// step does one step in each directory.
func (h *history) step(t *testing.T) {
	switch rapid.SampledFrom([]string{"call", "call", "call", "call", "call", "call", "call", "call", "file", "remove", "configuration"}).Draw(h.T, "step") {
	case "call":
		h.call()
	case "file":
		h.write()
	case "remove":
		names := []string{"lock"}
		for name := range contents(t, h.dirs[0], false) {
			names = append(names, name)
		}
		slices.Sort(names)
		name := rapid.SampledFrom(names).Draw(h.T, "name")
		for _, dir := range h.dirs {
			_ = os.Remove(filepath.Join(dir, testNetwork, name))
		}
	case "configuration":
		h.drawIPAM()
	}
	modes := h.program.version != "v1.0" // which writes files that all users may read
	want := contents(t, h.dirs[0], modes)
	for i, dir := range h.dirs[1:] {
		if got := contents(t, dir, modes); !reflect.DeepEqual(got, want) {
			h.Fatalf("directory %d: got\n%v; want\n%v", i+1, got, want)
		}
	}
}

func (h *history) call() {
	r := h.drawRequest()
	if h.program.version != newest && acceptedByOlder(r.configIn(h.dirs[0])) {
		return
	}
	want, err := h.program.call(h.dirs[0], r)
	if err != nil {
		h.Fatal(err)
	}
	for i, dir := range h.dirs[1:] {
		var got reply
		if i == 1 && rapid.Bool().Draw(h.T, "by the program") {
			got, err = h.program.call(dir, r)
		} else {
			got, err = embedded(context.Background(), h.stores, dir, r)
			if err != nil && err.Error() == got.Err {
				err = nil
			}
		}
		if !reflect.DeepEqual(got, want) {
			h.Fatalf("%+v in directory %d: got\n%+v (%v); want\n%+v", r, i+1, got, err, want)
		}
	}
}

// write writes a file as another version or the administrator may have: a lease with or without an interface, or the
// address from which an ADD begins.
func (h *history) write() {
	subnet := rapid.SampledFrom(slices.Concat(h.sets...)).Draw(h.T, "subnet")
	name, content := h.in(subnet, "address"), h.drawID()
	switch rapid.IntRange(0, 3).Draw(h.T, "kind") {
	case 0:
		content = " " + content + lineBreak + h.drawIfName() + "\n"
	case 1:
		name, content = lastReserved+strconv.Itoa(rapid.IntRange(0, 2).Draw(h.T, "range set")), name
	case 2:
		name = lastReserved + "0"
		content = cmp.Or(rapid.SampledFrom([]string{"", "junk", "192.0.2.1", "10.0.0.1\n"}).Draw(h.T, "content"), "")
	}
	for _, dir := range h.dirs {
		dir = filepath.Join(dir, testNetwork)
		if err := os.MkdirAll(dir, dirMode); err != nil {
			h.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), leaseMode); err != nil {
			h.Fatal(err)
		}
	}
}
