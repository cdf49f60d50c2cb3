package attachment

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/defaults"
	"github.com/delegated-ipam/delegated-ipam/pkg/journal/record"
)

// isGranted asks, with the turn, whether what is wanted is granted to the router already.
func (s scene) isGranted(want acquireRequest) bool {
	s.Helper()
	o := s.turnAt("router")
	defer o.unlock()
	return o.fulfilled(want)
}

// turnAt takes the turn at an owner's attachment. Who was answered may have it still.
func (s scene) turnAt(owner string) *operation {
	s.Helper()
	synctest.Wait()
	a, err := s.getOrCreate(key{defaults.Pool, owner})
	if err != nil {
		s.Fatal(err)
	}
	op := &operation{engine: s.Engine, entry: a}
	if !op.tryLock() {
		s.Fatalf("the entry of %s is locked", owner)
	}
	return op
}

// What is not granted takes the long way, and only that asks and writes.
func TestOnlyWhatIsHandedOutForGoodAndBelievedIsGranted(t *testing.T) {
	first := netip.MustParseAddr("10.0.0.1")
	both := acquireRequest{families: []record.Family{record.IPv4, record.IPv6}, anyFamily: true}
	six := acquireRequest{families: []record.Family{record.IPv6}}
	four := func(ip netip.Addr) acquireRequest {
		return acquireRequest{families: []record.Family{record.IPv4}, required: []netip.Addr{ip}}
	}
	for name, c := range map[string]struct {
		// after is what has happened since the allocation.
		after func(s scene)
		goal  acquireRequest
		want  bool
	}{
		"both families":                                   {nil, both, true},
		"one family":                                      {nil, six, true},
		"this address":                                    {nil, four(first), true},
		"another address":                                 {nil, four(first.Next()), false},
		"a family that was taken back":                    {func(s scene) { s.drop("fd00::1") }, six, false},
		"the family that is left":                         {func(s scene) { s.drop("fd00::1") }, four(first), true},
		"what has not been confirmed for a while":         {func(scene) { time.Sleep(2 * time.Minute) }, both, false},
		"what was handed out for a while only":            {func(s scene) { s.drop("10.0.0.1"); s.drop("fd00::1"); s.borrow() }, both, false},
		"what cools":                                      {func(s scene) { s.drop("10.0.0.1"); s.drop("fd00::1") }, both, false},
		"what the plugin has lost":                        {func(s scene) { s.lose() }, both, false},
		"what the disk may know otherwise":                {func(s scene) { s.failing(on("write held", 1, diskAfter)); _ = s.giveBack("fd00::1") }, four(first), false},
		"what is being got back":                          {func(s scene) { s.become(record.Adding) }, both, false},
		"nothing, because it went back":                   {func(s scene) { s.skipDelay("10.0.0.1"); s.skipDelay("fd00::1") }, both, false},
		"what is confirmed, asked for as an expiring one": {func(s scene) { s.borrow() }, both, true},
	} {
		play(t, name, nil, func(s scene) {
			s.allocate("router")
			if c.after != nil {
				c.after(s)
			}
			if got := s.isGranted(c.goal); got != c.want {
				s.Errorf("it is granted: %t", got)
			}
		}, func(o *Options) { o.VerifyInterval, o.ReleaseDelay = time.Minute, time.Hour })
	}
}

// drop takes the claim of an address back.
func (s scene) drop(ip string) {
	s.Helper()
	if err := s.giveBack(ip); err != nil {
		s.Fatal(err)
	}
}

// borrow asks for the router's addresses until they are confirmed.
func (s scene) borrow() {
	s.Helper()
	if _, err := s.ask(AllocateRequest{Owner: "router", Expire: true}); err != nil {
		s.Fatal(err)
	}
}

// lose lets the router's attachment be found lost.
func (s scene) lose() {
	s.Helper()
	o := s.turnAt("router")
	defer o.unlock()
	o.setLost(errDead)
}

// become puts the router's record into a state.
func (s scene) become(state record.State) {
	s.Helper()
	o := s.turnAt("router")
	defer o.unlock()
	r := o.entry.rec.Clone()
	r.State = state
	o.setRecord(r)
}
