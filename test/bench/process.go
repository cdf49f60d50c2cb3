package main

import (
	"errors"
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
func (b *bench) start() error {
	var beginning comparison
	begin := func(n *node, into *sample) func(bool) error {
		return func(counts bool) error {
			var s *server
			took, err := timed(func() (err error) {
				s, err = n.sidecar()
				return err
			})
			if err != nil {
				return err
			}
			if counts {
				into.add(took)
			}
			return s.stop()
		}
	}
	many, err := b.newNode("many")
	if err == nil {
		err = many.seed(manyRecords)
	}
	if err != nil {
		return err
	}
	none, err := b.newNode("none")
	if err == nil {
		err = alternate(max(b.pairs/10, 5), begin(many, &beginning.ours), begin(none, &beginning.reference))
	}
	b.report.add(compared("start to ready, 1,000 records", "an empty start", beginning, atMostMore(150)))
	return err
}

// memory measures the resident memory of an idle sidecar.
func (b *bench) memory() error {
	for count, limit := range map[int]float64{fewRecords: 25, manyRecords: 30} {
		size, err := b.idleWith(count)
		if err != nil {
			return err
		}
		b.report.add(single(fmt.Sprintf("resident memory, idle, %s attachments", thousands(count)), "MiB", size, below(limit)))
	}
	return nil
}

// idleWith returns the resident memory, in MiB, of a sidecar that has verified its attachments
// after the start and is idle.
func (b *bench) idleWith(count int) (float64, error) {
	n, err := b.newNode("idle-" + strconv.Itoa(count))
	if err == nil {
		err = n.seed(count)
	}
	if err != nil {
		return 0, err
	}
	s, err := n.sidecar()
	if err != nil {
		return 0, err
	}
	size, err := residentWhenIdle(s.cmd.Process.Pid)
	return size, errors.Join(err, s.stop())
}

var resident = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// residentWhenIdle waits until a process and its reaped children are idle, and returns its resident
// memory in MiB.
func residentWhenIdle(pid int) (float64, error) {
	before, err := cpuTicks(pid)
	for since := time.Now(); err == nil && time.Since(since) < idleTime; time.Sleep(idleTime / 20) {
		var now []string
		if now, err = cpuTicks(pid); !slices.Equal(now, before) {
			before, since = now, time.Now()
		}
	}
	if err != nil {
		return 0, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	m := resident.FindSubmatch(status)
	if err != nil || m == nil {
		return 0, fmt.Errorf("resident memory of process %d: %w", pid, errors.Join(err, errors.New("no VmRSS")))
	}
	kib, err := strconv.Atoi(string(m[1]))
	return float64(kib) / 1024, err
}

// cpuTicks returns the CPU time of a process and of its children, in ticks (proc(5), stat,
// fields 14 to 17).
func cpuTicks(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(after)[11:15], nil
}

// cpu is CPU time in ms: of a process, and of its reaped children.
type cpu struct{ own, children float64 }

// msPerTick is the unit of the times in stat, 1/USER_HZ.
const msPerTick = 10

// cpuTime returns the CPU time of a process so far.
func cpuTime(pid int) (cpu, error) {
	fields, err := cpuTicks(pid)
	if err != nil {
		return cpu{}, err
	}
	var ms [4]float64
	for i, text := range fields {
		ticks, err := strconv.Atoi(text)
		if err != nil {
			return cpu{}, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		ms[i] = float64(ticks) * msPerTick
	}
	return cpu{own: ms[0] + ms[1], children: ms[2] + ms[3]}, nil
}

// size measures the binary.
func (b *bench) size() error {
	info, err := os.Stat(b.binary)
	if err != nil {
		return err
	}
	b.report.add(single("binary, stripped, static ("+filepath.Base(b.binary)+")", "MiB", float64(info.Size())/mib, below(18)))
	return nil
}

// thousands formats a count with a comma.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
