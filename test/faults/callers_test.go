package faults

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Users, root and scrapers do as much as the limits of docs/operate/security.md permit: meanwhile pods
// are added and deleted, and the memory of the daemon stays below that of its container.

const (
	// The limits of a user other than root, and of root.
	userRequests, userLists       = 48, 2
	rootConnections, rootRequests = 512, 384

	// containerMemory is the memory limit of the daemon's container, in bytes. Of it residentMemory is
	// for the daemon, and the rest for plugins and for the kernel.
	containerMemory = 256 << 20
	residentMemory  = 192 << 20

	listRequest   = "GET /v1/ipam HTTP/1.1\r\nHost: localhost\r\n\r\n"
	scrapeRequest = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
)

// callers are two users who may call.
var callers = []harness.User{{UID: foreignUID, GID: foreignUID}, {UID: otherUID, GID: otherUID}}

// callersNode returns a node without the race detector, on whose socket the callers may call, and its
// pods.
func callersNode(t *testing.T) (*harness.Node, harness.Pods) {
	t.Helper()
	needRoot(t)
	n := lightNode(t)
	nw := harness.DualStack()
	nw.Subnets[0] = "10.15.0.0/16"
	pods := n.PodsThrough(t, "05-cilium", nw)
	check.Must(t, os.Chmod(n.Dir, 0o711)) // search permission for the socket
	n.Flags = append(n.Flags, "--socket-mode=0666", fmt.Sprintf("--allow-uids=%d,%d", foreignUID, otherUID))
	return n, pods
}

// wantMemory wants the peak of the daemon's memory to leave a share of the container's to others. The pages of
// files, such as the mapped journal, do not count: the kernel takes them back.
func wantMemory(t *testing.T, s *harness.Daemon) {
	t.Helper()
	peak := peakMemory(t, s) - memory(t, s, "RssFile")
	t.Logf("the peak of the daemon's memory is %d MiB", peak>>20)
	if peak > residentMemory {
		t.Errorf("the peak of the daemon's memory is %d MiB; want at most %d of the container's %d", peak>>20, residentMemory>>20, containerMemory>>20)
	}
}

// wantPodServed adds and deletes a pod.
func wantPodServed(t *testing.T, pods harness.Pods, id string) {
	t.Helper()
	if ips := pods.Add(t, id); len(ips) != 2 {
		t.Errorf("the pod has the addresses %q; want one of each family", ips)
	}
	pods.Del(t, id)
}

//evidence:operate/security lists that are not read
//evidence:operate/security requests that need much memory
func TestUnreadLists(t *testing.T) {
	const connections, each = 768, 768 / 2
	eachCase(t, overload, map[string]bool{"garbage collector's limit": false, "cgroup with the container's limit": true}, func(t *testing.T, _ *stats, limited bool) {
		needDescriptors(t, 2*connections)
		n, pods := callersNode(t)
		if limited {
			limitMemory(t, n)
		} else {
			n.Env = append(n.Env, fmt.Sprintf("GOMEMLIMIT=%d", containerMemory*7/10)) // as in the container
		}
		seedAttachments(t, n, sized(t, 2000, 20000))
		// The comparisons of Start are quadratic in the number of attachments.
		s := n.Launch(t, "--max-attachments=30000", "--log-level=debug")
		s.WaitReady(t)
		if limited {
			s.WaitLog(t, "The memory of the Go runtime is limited", fmt.Sprint(containerMemory*7/10))
		}
		held := s.AllocateFor(t, "router")
		t.Logf("after the start the peak of the daemon's memory is %d MiB", peakMemory(t, s)>>20)
		for range sized(t, 2, 4) {
			var open []net.Conn
			for _, user := range callers {
				for range userLists {
					open = append(open, beginList(t, s, user))
				}
				more := sendAs(t, n.Socket, user, each-userLists, listRequest)
				wantListsRefused(t, more)
				open = append(open, more...)
			}
			wantServed(t, s, held)
			wantPodServed(t, pods, "pod")
			for _, conn := range open {
				conn.Close()
			}
		}
		wantMemory(t, s)
	})
}

// beginList returns a connection on which the daemon has begun a list for a user, which is not read.
func beginList(t *testing.T, s *harness.Daemon, user harness.User) (open net.Conn) {
	t.Helper()
	const begun = "HTTP/1.1 200 "
	harness.Eventually(t, "lists on closed connections to end", func() error {
		conn, err := s.DialAs(user)
		check.Must(t, err)
		status := make([]byte, len(begun))
		_, err = io.WriteString(conn, listRequest)
		if err == nil {
			_, err = io.ReadFull(conn, status)
		}
		if err != nil || string(status) != begun {
			conn.Close()
			return fmt.Errorf("a list was answered %q, %w", status, err)
		}
		open = conn
		return nil
	})
	return open
}

// wantListsRefused wants the lists on the connections to have been refused, because too many are in
// progress or too many connections are open. A few are served where earlier ones end, as they are not
// read.
func wantListsRefused(t *testing.T, conns []net.Conn) {
	t.Helper()
	counts := map[int]int{}
	for _, conn := range conns {
		a, closes, err := readResponse(conn)
		switch counts[a.Status]++; {
		case closedByServer(err) || err == nil && a.Status == http.StatusOK:
		case err != nil || a.Status != http.StatusServiceUnavailable || !closes || a.Header.Get("Retry-After") == "":
			t.Fatalf("a list above the limit was answered %s, %v; want 503 with Retry-After", a, err)
		}
	}
	t.Logf("%d lists were answered 503, %d served, and %d connections closed", counts[503], counts[200], counts[0])
	if counts[http.StatusServiceUnavailable] == 0 {
		t.Error("no list was refused")
	}
}

// closedByServer reports whether an error means that the server has closed the connection.
func closedByServer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// seedAttachments writes that many attachments into the journal and into host-local's store, as copies
// of one: as many ADDs would take minutes.
func seedAttachments(t *testing.T, n *harness.Node, count int) {
	t.Helper()
	s := n.Start(t)
	s.AllocateFor(t, "seeded")
	stored := n.Leases(t)
	s.Stop(t)
	state, err := statedir.Lock(t.Context(), n.StateDir, statedir.Holder{}, nil)
	check.Must(t, err)
	j := journal.Open(state, journal.Options{})
	loaded, err := j.Load()
	check.Must(t, err)
	if len(loaded.Records) != 1 || len(stored) != 2 {
		t.Fatalf("the journal has %d records, and the store %d leases; want 1 and 2", len(loaded.Records), len(stored))
	}
	first := loaded.Records[0]
	ips := first.Addrs()
	var g errgroup.Group
	g.SetLimit(16)
	for i := range count {
		r := first.Clone()
		r.Owner = fmt.Sprintf("seeded-%d", i)
		r.ContainerID = containerid.For(r.Owner, r.Node, r.Network)
		replace := []string{first.ContainerID, r.ContainerID}
		for family, ip := range ips {
			next := seededAddr(ip, i)
			replace = append(replace, ip.String()+"/", next.String()+"/")
			r.Result.Addresses[family].Prefix = netip.PrefixFrom(next, r.Result.Addresses[family].Prefix.Bits())
		}
		replaced := strings.NewReplacer(replace...)
		inv := &r.Invocations[0]
		inv.ContainerID, inv.PrevResult = r.ContainerID, []byte(replaced.Replace(string(inv.PrevResult)))
		g.Go(func() error {
			for family, ip := range ips {
				lease, err := os.ReadFile(leaseFile(n, ip))
				if err == nil {
					err = os.WriteFile(leaseFile(n, r.Result.Addresses[family].Prefix.Addr()), []byte(replaced.Replace(string(lease))), 0o600)
				}
				if err != nil {
					return err
				}
			}
			return j.Write(r)
		})
	}
	err = g.Wait()
	j.Close()
	check.Must(t, errors.Join(err, state.Close()))
}

// seededAddr returns an address above those that host-local allocates in the test.
func seededAddr(ip netip.Addr, i int) netip.Addr {
	bytes, i := ip.AsSlice(), i+1<<15
	bytes[len(bytes)-2], bytes[len(bytes)-1] = byte(i>>8), byte(i)
	next, _ := netip.AddrFromSlice(bytes)
	return next
}

// leaseFile is host-local's file of an address.
func leaseFile(n *harness.Node, ip netip.Addr) string {
	return filepath.Join(n.StoreDir, "pods", ip.String())
}

// limitMemory runs the node's daemons, with their plugins, in a new cgroup with the memory limit of the
// container. At the end no process must have been killed.
func limitMemory(t *testing.T, n *harness.Node) {
	t.Helper()
	parent, files, err := memoryCgroup()
	if err != nil {
		harness.Skipf(t, "no memory cgroup: %v", err)
	}
	dir := filepath.Join(parent, n.Name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		harness.LackRight(t, "no memory cgroup", err)
	}
	t.Cleanup(func() {
		peak, _ := os.ReadFile(filepath.Join(dir, files.peak)) // older kernels lack it
		t.Logf("the peak of the cgroup's memory is %q bytes", strings.TrimSpace(string(peak)))
		events, err := os.ReadFile(filepath.Join(dir, files.events))
		if !strings.Contains("\n"+string(events), "\noom_kill 0\n") {
			t.Errorf("a process was killed for memory: %q, %v", events, err)
		}
		harness.Eventually(t, "the processes of the cgroup to end", func() error { return os.Remove(dir) })
	})
	check.Must(t, os.WriteFile(filepath.Join(dir, files.limit), []byte(strconv.Itoa(containerMemory)), 0o644))
	n.Wrapper = []string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(dir, "cgroup.procs")}
}

// cgroupFiles are the files of a memory cgroup.
type cgroupFiles struct{ limit, peak, events string }

// memoryCgroup returns the cgroup in which those with a memory limit can be created, where systemd and
// the container runtimes mount it.
func memoryCgroup() (dir string, files cgroupFiles, err error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(data)) {
		switch f := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case f[1] == "memory":
			return filepath.Join("/sys/fs/cgroup/memory", f[2]), cgroupFiles{"memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"}, nil
		case f[1] == "":
			dir = f[2]
		}
	}
	// A cgroup of version 2 with processes has no children with limits.
	for ; dir != "" && err == nil; dir = filepath.Dir(dir) {
		path := filepath.Join("/sys/fs/cgroup", dir)
		controllers, _ := os.ReadFile(filepath.Join(path, "cgroup.subtree_control"))
		if strings.Contains(" "+strings.TrimSpace(string(controllers))+" ", " memory ") {
			return path, cgroupFiles{"memory.max", "memory.peak", "memory.events"}, nil
		}
		if dir == "/" {
			err = errors.New("no hierarchy has the controller")
		}
	}
	return "", files, err
}

// The package internal/metricsserver of the daemon's listener is also that of delegated-ipam-bridge.
//
//evidence:operate/security 8,000 connections, idle after a scrape, without a request, or with an unfinished one
func TestScrapeFlood(t *testing.T) {
	oneCase(t, overload)
	const connections, wave = 8000, 1000
	needDescriptors(t, 2*wave)
	n := lightNode(t)
	s := n.Start(t, "--metrics-address=127.0.0.1:0")
	s.AllocateFor(t, "router")
	address := metricsAddress(t, s)
	scrape := func(conn net.Conn) (int, error) {
		_, err := io.WriteString(conn, scrapeRequest)
		a, _, readErr := readResponse(conn)
		return a.Status, errors.Join(err, readErr)
	}
	before := peakMemory(t, s)
	var served, refused atomic.Int32
	for range connections / wave {
		var all [wave]net.Conn
		var g errgroup.Group
		g.SetLimit(8)
		for i := range all {
			g.Go(func() (err error) {
				if all[i], err = net.Dial("tcp", address); err != nil {
					return err
				}
				switch status, err := scrape(all[i]); {
				case status == http.StatusOK:
					served.Add(1)
				case status == http.StatusServiceUnavailable || closedByServer(err): // in favor of a later one
					refused.Add(1)
				case err != nil:
					return err
				default:
					return fmt.Errorf("a scrape was answered %d", status)
				}
				return nil
			})
		}
		check.Must(t, g.Wait())
		for _, conn := range all {
			conn.Close()
		}
	}
	t.Logf("%d scrapes were served, %d refused", served.Load(), refused.Load())
	conn, err := net.Dial("tcp", address)
	check.Must(t, err)
	defer conn.Close()
	if status, err := scrape(conn); status != http.StatusOK || err != nil {
		t.Errorf("a scrape afterwards was answered %d, %v; want 200", status, err)
	}
	wantGrowth(t, s, before, 32<<20)
	wantMemory(t, s)
}

// metricsAddress returns the address of the daemon's only TCP socket, on loopback.
func metricsAddress(t *testing.T, s *harness.Daemon) string {
	t.Helper()
	found := sockets(t, s, "tcp")
	if len(found) != 1 {
		t.Fatalf("the daemon has the TCP sockets %q; want one", found)
	}
	_, text, _ := strings.Cut(found[0][1], ":")
	port, err := strconv.ParseUint(text, 16, 16)
	check.Must(t, err)
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// Two users have as many allocations in progress as they may, and the plugin is paused in each that
// calls it. The calls for root and for a pod do not wait for these.
//
//evidence:operate/security more requests than the daemon can serve
func TestUsersAndPausedPlugin(t *testing.T) {
	// Of N processes N - 2*(N/4) are for the users, and of the queue a quarter for each of them.
	const processes, ofUsers, each = 8, 4, 200
	type queue struct{ length, inProgress int }
	eachCase(t, overload, map[string]queue{
		"the queue limits them":  {64, 64 / 4},
		"the socket limits them": {1024, userRequests},
	}, func(t *testing.T, _ *stats, c queue) {
		needDescriptors(t, 4*each)
		n, pods := callersNode(t)
		plugin := installPausable(t, n)
		s := n.Start(t, fmt.Sprintf("--max-plugin-processes=%d", processes), fmt.Sprintf("--max-queued-requests=%d", c.length), "--verify-interval=1h", "--plugin-timeout=10m")
		held := s.AllocateFor(t, "health")

		plugin.pause(t)
		sent := time.Now()
		var inProgress []<-chan answered
		for _, user := range callers {
			answers := allocateAs(t, s, user, each)
			wantBusy(t, answers, each-c.inProgress)
			inProgress = append(inProgress, answers)
		}
		plugin.waitPausedADDs(t, ofUsers)
		router := allocateInBackground(s, "router", 1)
		plugin.waitPausedADDs(t, ofUsers+1)
		wantPodServed(t, pods, "pod")
		plugin.waitPausedADDs(t, ofUsers+1) // still
		wantHeld(t, s, "health", held)
		check.Must(t, s.Ready())
		wantMemory(t, s)

		plugin.resume(t)
		wantCreated(t, router, 1, sent)
		for _, answers := range inProgress {
			wantCreated(t, answers, c.inProgress, sent)
		}
	})
}

// allocateAs allocates as a user for that many owners, each on a connection.
func allocateAs(t *testing.T, s *harness.Daemon, user harness.User, owners int) <-chan answered {
	t.Helper()
	answers := make(chan answered, owners)
	for i := range owners {
		conn := sendAs(t, s.Socket, user, 1, allocateRequest(fmt.Sprintf("user-%d-%d", user.UID, i)))[0]
		t.Cleanup(func() { conn.Close() })
		go func() {
			a, _, err := readResponse(conn)
			answers <- answered{a, err}
		}()
	}
	return answers
}

func allocateRequest(owner string) string {
	return "POST /v1/ipam?owner=" + owner + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
}

// wantBusy wants that many requests to be refused, because of the queue, the requests in progress, or the
// open connections.
func wantBusy(t *testing.T, answers <-chan answered, want int) {
	t.Helper()
	counts := map[int]int{}
	for range want {
		a := <-answers
		counts[a.Status]++
		busy := a.Status == http.StatusServiceUnavailable || a.Status == http.StatusBadGateway && strings.Contains(string(a.Body), "--max-queued-requests")
		if !closedByServer(a.err) && (a.err != nil || !busy || a.Header.Get("Retry-After") == "") {
			t.Fatalf("a request above the limits was answered %s, %v; want 502 or 503 with Retry-After", a.Response, a.err)
		}
	}
	t.Logf("%d requests were answered 502, %d 503, and %d connections closed", counts[502], counts[503], counts[0])
}

// wantCreated wants that many requests to succeed, unless the machine was too busy to resume the plugin in
// time.
func wantCreated(t *testing.T, answers <-chan answered, want int, sent time.Time) {
	t.Helper()
	const requestWait = 80 * time.Second // docs/design/how-it-works.md, Waiting
	for range want {
		if a := <-answers; (a.err != nil || a.Status != http.StatusCreated) && time.Since(sent) < requestWait {
			t.Errorf("a request in progress was answered %s, %v; want 201", a.Response, a.err)
		}
	}
}

// Root has as many requests in progress, and connections, as it may.
//
//evidence:operate/security many requests in progress
func TestRequestsOfRoot(t *testing.T) {
	oneCase(t, overload)
	const maxProcesses = 4
	const processes = maxProcesses * 3 / 4
	needDescriptors(t, 2*rootConnections)
	n, pods := callersNode(t)
	plugin := installPausable(t, n)
	s := n.Start(t, fmt.Sprintf("--max-plugin-processes=%d", maxProcesses), "--verify-interval=1h", "--plugin-timeout=10m")
	held := s.AllocateFor(t, "health")
	plugin.pause(t)
	var owners atomic.Int32
	requests := connect(t, n.Socket, rootRequests, func(conn net.Conn) error {
		_, err := io.WriteString(conn, allocateRequest(fmt.Sprintf("root-%d", owners.Add(1))))
		return err
	})
	// A request of root for the metrics would be one of those in progress.
	waitQueued(t, func() harness.Response { return s.DoAs(t, callers[0], http.MethodGet, "/metrics") }, rootRequests-processes)
	a := s.Do(t, http.MethodGet, "/v1/ipam")
	a.WantError(t, http.StatusServiceUnavailable, fmt.Sprintf("%d requests of one user", rootRequests))
	if a.Header.Get("Retry-After") == "" {
		t.Error("the response lacks Retry-After")
	}
	connect(t, n.Socket, rootConnections-rootRequests, func(conn net.Conn) error { return get(conn, "/v1/config") })

	if o := n.Command(t, "probe", "live", "--timeout=1m"); o.ExitCode != 0 {
		t.Errorf("probe live ended with %+v", o)
	}
	check.Must(t, s.Ready())
	wantPodServed(t, pods, "pod")
	if a := s.DoAs(t, callers[0], http.MethodPost, "/v1/ipam?owner=health"); a.Status != http.StatusCreated {
		t.Errorf("another user was answered %s; want 201", a)
	}
	wantMemory(t, s)

	for _, conn := range requests {
		conn.Close() // those that wait for a plugin process are dropped
	}
	plugin.resume(t)
	harness.Eventually(t, "the requests to end", func() error {
		if a, err := s.Try(http.MethodGet, "/v1/ipam"); err != nil || a.Status != http.StatusOK {
			return fmt.Errorf("the list was answered %s, %w", a, err)
		}
		return nil
	})
	wantHeld(t, s, "health", held)
}

// A minute in which a runtime adds and deletes 500 pods a second, in more processes than root may have
// connections. The runtime repeats a call that gets the CNI error code 11.
//
//evidence:operate/security many requests in progress
func TestPodChurn(t *testing.T) {
	oneCase(t, overload)
	const workers = 600
	count := int64(sized(t, 700, 30000))
	n, pods := callersNode(t)
	s := n.Start(t)
	before := peakMemory(t, s)
	var begun, repeated atomic.Int64
	call := func(verb, id string) error {
		for {
			_, err := pods.Call(verb, id, nil)
			if err == nil || !strings.Contains(err.Error(), `"code": 11,`) || strings.Contains(err.Error(), syscall.ECONNRESET.Error()) {
				return err
			}
			repeated.Add(1)
		}
	}
	began := time.Now()
	var g errgroup.Group
	for range workers {
		g.Go(func() error {
			for i := begun.Add(1); i <= count; i = begun.Add(1) {
				id := fmt.Sprintf("pod-%d", i)
				if err := errors.Join(call("ADD", id), call("DEL", id)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	check.Must(t, g.Wait())
	t.Logf("%d pods in %s, %d calls were repeated", count, time.Since(began).Round(time.Second), repeated.Load())
	// A DEL that did not reach the daemon in time has been left in the spool.
	harness.Eventually(t, "the end of every pod", func() error {
		if list, leases := s.List(t), n.Leases(t); len(list)+len(leases) > 0 {
			return fmt.Errorf("the list has %+v, and the store %v", list, leases)
		}
		return nil
	})
	wantGrowth(t, s, before, 128<<20)
	wantMemory(t, s)
}
