package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
)

const (
	manyRecords = 1000
	fewRecords  = 10
	mib         = 1 << 20

	// idleTime is the time without CPU use after which a process counts as idle.
	idleTime = 2 * time.Second
)

// seeded returns a new node whose stopped daemon has a number of attachments.
func (b *bench) seeded(name string, count int) *node {
	n := b.newNode(name)
	s := n.daemon()
	defer s.stop()
	s.seed(count)
	return n
}

// start measures the time from the start of the process until it is ready, with and without
// records.
func (b *bench) start() {
	begin := func(n *node) func() []float64 {
		return func() []float64 {
			var s *server
			took := timed(func() { s = n.daemon() })
			s.stop()
			return []float64{took}
		}
	}
	c := alternate(max(b.pairs/10, 5), begin(b.seeded("many", manyRecords)), begin(b.newNode("none")))
	b.add(compared("start to ready, 1,000 records", "an empty start", c[0], "at most 150 ms more"))
}

// memory measures the resident memory of an idle daemon.
func (b *bench) memory() {
	for _, at := range []struct {
		count int
		goal  string
	}{{fewRecords, "<= 25"}, {manyRecords, "<= 30"}} {
		size := b.seeded(fmt.Sprintf("idle-%d", at.count), at.count).residentWhenIdle()
		b.add(single(fmt.Sprintf("resident memory, idle, %s attachments", thousands(at.count)), "MiB", size, at.goal))
	}
}

// residentWhenIdle starts a daemon, waits until it has verified its attachments and is idle, as are its
// reaped children, and returns its resident memory in MiB.
func (n *node) residentWhenIdle() float64 {
	s := n.daemon()
	defer s.stop()
	before := cpuTime(s.cmd.Process.Pid)
	for since := time.Now(); time.Since(since) < idleTime; time.Sleep(idleTime / 20) {
		if now := cpuTime(s.cmd.Process.Pid); now != before {
			before, since = now, time.Now()
		}
	}
	return float64(must(must(procfs.NewProc(s.cmd.Process.Pid)).NewStatus()).VmRSS) / mib
}

// cpuTime returns the CPU time of a process and of its children so far, in ms.
func cpuTime(pid int) float64 {
	s := must(must(procfs.NewProc(pid)).Stat())
	const msPerTick = 10 // 1/USER_HZ (proc(5), stat)
	return msPerTick * (float64(s.UTime+s.STime) + float64(s.CUTime+s.CSTime))
}

// size measures the binary.
func (b *bench) size() {
	size := float64(must(os.Stat(b.binary)).Size()) / mib
	b.add(single("binary, stripped, static ("+filepath.Base(b.binary)+")", "MiB", size, "<= 18"))
}

// thousands formats a count with a comma.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
