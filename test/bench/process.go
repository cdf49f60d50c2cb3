package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	manyRecords = 1000
	fewRecords  = 10
	mib         = 1 << 20

	// idleTime is the time without CPU use after which a process counts as idle.
	idleTime = 2 * time.Second
)

// start measures the time from the start of the process until it is ready, with and without
// records.
func (b *bench) start() {
	var beginning comparison
	begin := func(n *node) func() []float64 {
		return func() []float64 {
			var s *server
			took := timed(func() { s = n.daemon() })
			s.stop()
			return []float64{ms(took)}
		}
	}
	many := b.newNode("many")
	many.seed(manyRecords)
	alternate(max(b.pairs/10, 5), begin(many), begin(b.newNode("none")), &beginning)
	b.report.add(compared("start to ready, 1,000 records", "an empty start", beginning, atMostMore(150)))
}

// memory measures the resident memory of an idle daemon.
func (b *bench) memory() {
	for count, limit := range map[int]float64{fewRecords: 25, manyRecords: 30} {
		n := b.newNode("idle-" + strconv.Itoa(count))
		n.seed(count)
		size := n.residentWhenIdle()
		b.report.add(single(fmt.Sprintf("resident memory, idle, %s attachments", thousands(count)), "MiB", size, below(limit)))
	}
}

var resident = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// residentWhenIdle starts a daemon, waits until it has verified its attachments and is idle, as are its
// reaped children, and returns its resident memory in MiB.
func (n *node) residentWhenIdle() float64 {
	s := n.daemon()
	defer s.stop()
	pid := s.cmd.Process.Pid
	before := cpuTicks(pid)
	for since := time.Now(); time.Since(since) < idleTime; time.Sleep(idleTime / 20) {
		if now := cpuTicks(pid); !slices.Equal(now, before) {
			before, since = now, time.Now()
		}
	}
	m := resident.FindSubmatch(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))))
	if m == nil {
		failIf(fmt.Errorf("resident memory of process %d: no VmRSS", pid))
	}
	return float64(must(strconv.Atoi(string(m[1])))) / 1024
}

// cpuTicks returns the CPU time of a process and of its children, in ticks (proc(5), stat,
// fields 14 to 17).
func cpuTicks(pid int) []string {
	_, after, _ := strings.Cut(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))), ") ")
	return strings.Fields(after)[11:15]
}

// msPerTick is the unit of the times in stat, 1/USER_HZ.
const msPerTick = 10

// cpuTime returns the CPU time of a process so far, in ms.
func cpuTime(pid int) (sum float64) {
	for _, text := range cpuTicks(pid) {
		sum += float64(must(strconv.Atoi(text))) * msPerTick
	}
	return sum
}

// size measures the binary.
func (b *bench) size() {
	size := float64(must(os.Stat(b.binary)).Size()) / mib
	b.report.add(single("binary, stripped, static ("+filepath.Base(b.binary)+")", "MiB", size, below(18)))
}

// thousands formats a count with a comma.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
