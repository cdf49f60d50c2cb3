package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// claims are the addresses that callers have, by the results that they got.
type claims struct {
	mu    sync.Mutex
	owner map[netip.Addr]string
}

func (c *claims) claim(t *testing.T, id string, ips []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ip := range ips {
		if other, taken := c.owner[ip]; taken {
			t.Errorf("%s is allocated to %s and %s", ip, other, id)
		}
		c.owner[ip] = id
	}
}

func (c *claims) unclaim(ips []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ip := range ips {
		delete(c.owner, ip)
	}
}

// poolSize is the number of addresses of each range set of poolConfig.
const (
	poolSize   = 10
	poolConfig = `{"cniVersion":"1.0.0","name":"net","ipam":{"type":"host-local","dataDir":"DIR","ranges":[
		[{"subnet":"10.1.0.0/28","rangeStart":"10.1.0.2","rangeEnd":"10.1.0.11"}],
		[{"subnet":"fd00::/124","rangeStart":"fd00::2","rangeEnd":"fd00::4"},{"subnet":"fd00::10/124","rangeStart":"fd00::12","rangeEnd":"fd00::18"}]]}}`
	exhausted = "no IP addresses available in range set"
)

// resultIPs returns the addresses of a result of CNI 1.0.0.
func resultIPs(r reply) (ips []netip.Addr) {
	fields, _ := r.Result.(map[string]any)
	list, _ := fields["ips"].([]any)
	for _, e := range list {
		text, _ := e.(map[string]any)["address"].(string)
		ips = append(ips, netip.MustParsePrefix(text).Addr())
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return ips
}

// Programs, some of which are killed, and two Stores change one directory concurrently: no address has two owners, and
// none is lost.
func TestCallAmongPrograms(t *testing.T) {
	t.Parallel()
	versions := programs(t)
	dir := t.TempDir()
	held := claims{owner: map[netip.Addr]string{}}
	stores := make([]Stores, 2)
	defer closeStores(&stores[0], &stores[1])
	steps := 60
	if testing.Short() {
		steps /= 5
	}
	var ids []string
	var all sync.WaitGroup
	for n := range 8 {
		w := writer{
			T: t, random: rand.New(rand.NewPCG(uint64(n), 1)), stores: &stores[n%2], programs: versions,
			dir: dir, claims: &held, has: map[string][]netip.Addr{},
		}
		for i := range 2 {
			id := fmt.Sprintf("pod-%d-%d", n, i)
			w.has[id], ids = nil, append(ids, id)
			w.ids = append(w.ids, id)
		}
		all.Go(func() {
			for range steps {
				w.step()
			}
		})
	}
	all.Wait()

	call := func(command, id string) (reply, error) {
		return embedded(t.Context(), &stores[0], dir, request{command: command, id: id, ifname: "eth0", config: poolConfig})
	}
	for _, id := range ids {
		_, err := call("DEL", id)
		check.NoError(t, err)
	}
	for name, content := range contents(t, dir, false) {
		if _, ok := Address(name); ok && content != `""` { // of a program that was killed before it wrote the lease
			t.Errorf("%s has %s after DEL of all", name, content)
		}
	}
	for i := range poolSize {
		r, err := call("ADD", fmt.Sprint("all-", i))
		check.NoError(t, err)
		check.Equal(t, "number of addresses", len(resultIPs(r)), 2)
	}
	_, err := call("ADD", "one-more")
	check.Error(t, err, exhausted)
	for i := range poolSize {
		_, err := call("DEL", fmt.Sprint("all-", i))
		check.NoError(t, err)
	}
	check.Equal(t, "files", check.Names(t, filepath.Join(dir, testNetwork)), "last_reserved_ip.0 last_reserved_ip.1 lock")
}

// writer makes calls for its container IDs, one at a time.
type writer struct {
	*testing.T
	random   *rand.Rand
	stores   *Stores
	programs []program
	dir      string
	*claims
	ids []string
	// has are the addresses of each container ID.
	has map[string][]netip.Addr
}

func (w *writer) step() {
	id := w.ids[w.random.IntN(len(w.ids))]
	if ips := w.has[id]; ips != nil {
		w.unclaim(ips)
		for !w.del(id) {
			continue // a killed program, or a call without the time for the lock
		}
		w.has[id] = nil
		return
	}
	r, done := w.call("ADD", id)
	switch ips := resultIPs(r); {
	case len(ips) == 2:
		w.claim(w.T, id, ips)
		w.has[id] = ips
		if w.random.IntN(3) == 0 {
			found, err := w.stores.Find(Store{Dir: filepath.Join(w.dir, testNetwork)}, id, "eth0")
			if err == nil && !slices.Equal(found, ips) {
				w.Errorf("the lookup for %s found %v; want %v", id, found, ips)
			}
		}
	case r.Result != nil || done && !strings.Contains(r.Err, exhausted):
		w.Errorf("ADD for %s: %+v", id, r)
	case !done:
		w.has[id] = []netip.Addr{}
	}
}

// del reports whether it has released all of a container ID.
func (w *writer) del(id string) bool {
	r, done := w.call("DEL", id)
	if r != (reply{}) {
		w.Errorf("DEL for %s: %+v", id, r)
	}
	return done
}

// call makes a call in one of three ways. It reports false if a program was killed, or a call had no time.
func (w *writer) call(command, id string) (reply, bool) {
	r := request{command: command, id: id, ifname: "eth0", config: poolConfig}
	p := w.programs[w.random.IntN(len(w.programs))]
	switch w.random.IntN(8) {
	case 0, 1:
		return w.killed(p, r)
	case 2:
		got, err := p.call(w.dir, r)
		check.NoError(w, err)
		return got, true
	case 3:
		ctx, cancel := context.WithTimeout(w.Context(), time.Duration(w.random.IntN(int(20*time.Millisecond))))
		defer cancel()
		got, err := embedded(ctx, w.stores, w.dir, r)
		if _, ok := errors.AsType[NotStartedError](err); ok || strings.Contains(got.Err, "time limit") {
			return reply{}, false
		}
		return got, true
	}
	got, _ := embedded(w.Context(), w.stores, w.dir, r)
	return got, true
}

// killed kills a program at a random moment, unless it ends before.
func (w *writer) killed(p program, r request) (reply, bool) {
	ctx, cancel := context.WithTimeout(w.Context(), time.Duration(w.random.IntN(int(12*time.Millisecond))))
	defer cancel()
	got, err := replyOf(p.commandUntil(ctx, w.dir, r), w.dir)
	if ctx.Err() != nil {
		return reply{}, false // it may have done everything or nothing
	}
	check.NoError(w, err)
	return got, true
}
