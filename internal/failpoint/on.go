//go:build failpoints

package failpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Reach counts the visit, and kills the process with SIGKILL if the plan names it. It panics if
// the plan cannot be followed: a test would take the process for one that passed the point.
func Reach(p Point) {
	file := os.Getenv(EnvPlan)
	if file == "" {
		return
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		panic(err)
	}
	visit, err := count(p, VisitsFile(file))
	if err != nil {
		panic(fmt.Errorf("count the visit of %s: %w", p, err))
	}
	if string(text) == (Plan{Point: p, Visit: visit}).String() {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {} // the signal is on its way
	}
}

// count appends a visit to the file and returns its number. The lock keeps goroutines from getting
// the same number.
func count(p Point, visits string) (int, error) {
	f, err := os.OpenFile(visits, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintln(f, p); err != nil {
		return 0, err
	}
	// Not by its name: a test may have removed the file.
	all, err := io.ReadAll(io.NewSectionReader(f, 0, math.MaxInt64))
	if err != nil {
		return 0, err
	}
	n := 0
	for line := range slices.Values(strings.Fields(string(all))) {
		if line == string(p) {
			n++
		}
	}
	return n, nil
}
