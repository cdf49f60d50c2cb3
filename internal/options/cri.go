package options

import (
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// CRI is the options of delegated-ipam-cri. The declarations describe the fields.
type CRI struct {
	// CRISocket is the socket of the container runtime, with the scheme unix.
	CRISocket          string
	SocketPath, PodUID string
	Interval           time.Duration
	Log
}

// NewCRI returns the options with their defaults, and the flags that set them. Of the environment only the default of
// --pod-uid depends.
func NewCRI(env map[string]string) (*CRI, *pflag.FlagSet) {
	c := &CRI{}
	return c, flags(c.declare(env))
}

func (c *CRI) declare(env map[string]string) []Option {
	const socket = unixScheme + "/run/containerd/containerd.sock"
	return append([]Option{
		{
			Name: "cri-socket", Default: socket, Help: "CRI socket of the container runtime; a bare path is accepted",
			Value: socketValue(&c.CRISocket, "the absolute path of a unix socket, such as "+socket, filepath.IsAbs),
		},
		{
			Name: "socket-path", Value: Path(&c.SocketPath), Default: client.DefaultSocket, Help: "unix socket of the daemon",
			Valid: func() bool { return filepath.IsAbs(c.SocketPath) }, Expected: "an absolute path",
		},
		{
			// A shorter one would only cost, and the daemon uses a report for 5 minutes.
			Name: "interval", Value: Duration(&c.Interval), Default: "1m", Help: "time between two reports",
			Valid: func() bool { return c.Interval >= 10*time.Second && c.Interval <= 2*time.Minute }, Expected: "10s to 2m",
		},
		{
			Name: "pod-uid", Value: Text(&c.PodUID, "uid"), Default: env["K8S_POD_UID"], DefaultText: "$K8S_POD_UID",
			Help: "UID of this pod: a list without its sandbox is partial, and is not reported (empty = not checked)",
		},
	}, c.Log.declare("")...)
}

// Validate reports each invalid option: its name, its value and the expected values.
func (c CRI) Validate() error { return validate(c.declare(nil)) }
