package cmdline

import (
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/sirupsen/logrus"
)

// memoryRatio is the share of the container's memory that the Go runtime of this process may use. The
// plugin processes and the buffers of the kernel's sockets are in the same container.
const memoryRatio = 0.7

// LimitMemory makes the garbage collector keep the process below a share of the memory limit of its
// cgroup (GOMEMLIMIT), so that a peak does not end it. It has no effect without a limit, or if the
// environment variable GOMEMLIMIT is set.
func LimitMemory(log logrus.FieldLogger) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryRatio))
	switch {
	case err != nil:
		log.WithError(err).Debug("The memory limit of the container is not known")
	case limit < math.MaxInt64:
		log.WithField("bytes", limit).Debug("The memory of the Go runtime is limited")
	}
}
