package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/internal/process"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

// Defaults of Options.
const (
	// DefaultNetNS is a path that does not exist: a plugin built with the CNI skeleton accepts it,
	// and it can never be the plugin's own namespace.
	DefaultNetNS = "/var/run/netns/delegated-ipam-does-not-exist"
	// DefaultGrace is how long a plugin may clean up: host-local killed in the middle of a write
	// leaves a file that no verb can free.
	DefaultGrace = 5 * time.Second
)

// MaxCall returns how long a plugin call with a time limit takes at most.
func MaxCall(timeout time.Duration) time.Duration { return process.MaxWait(timeout, DefaultGrace) }

// Options configure how plugins are found and run.
type Options struct {
	// BinDirs are the absolute directories of the plugins, in the order of the search (--cni-bin-dir).
	// Required.
	BinDirs []string
	// IfName is CNI_IFNAME (--cni-ifname). Required.
	IfName string
	// NetNS is CNI_NETNS: an absolute path, or empty for one that the plugin's profile accepts
	// (--cni-netns).
	NetNS string
	// AcceptUnsafe uses plugins that are unsafe by their profile (--accept-unsafe-plugin).
	AcceptUnsafe bool
	// HostLocal is how host-local is run (--host-local); empty for HostLocalAuto.
	HostLocal string
	// Exclude are addresses that embedded host-local returns only if they are requested (--exclude-addresses).
	Exclude []netip.Prefix
	// SingleNode uses a configuration that every node has with a plugin that needs one of the
	// node's own, because the cluster has one node (--single-node).
	SingleNode bool
	// EnableIPv4 and EnableIPv6 are the families of which owners get addresses (--enable-ipv4,
	// --enable-ipv6); both are false if that is unknown.
	EnableIPv4, EnableIPv6 bool
	// Timeout limits one plugin call, and the wait for a plugin of a previous run (--plugin-timeout).
	// Required.
	Timeout time.Duration
	// Grace is the time from SIGTERM to SIGKILL; 0 for DefaultGrace.
	Grace time.Duration
	// Env names variables of this process that plugins get, too (--plugin-env). Names that begin
	// with CNI_ are refused.
	Env []string
	// LockFile is the file of the inherited locks; it is created if it does not exist. After a
	// restart it must be the same file. Required.
	LockFile string
	// LockDir is the open directory of LockFile, so that no lock file is created in a directory that
	// replaced it; nil to open LockFile by its path.
	LockDir *os.File
	// InPod reports that this process runs in a pod, where the plugin's state directory must be a
	// mount of the host's.
	InPod bool
	// Profiles returns the plugin profiles as they are now, as profile.Load does, or why there are
	// none. It is called for each new invocation, also concurrently. Required.
	Profiles func() (profile.Set, error)
	// Log gets one debug line for each call; nil for none.
	Log logrus.FieldLogger
	// Observer gets each call; nil for none.
	Observer Observer
}

// Observer observes plugin calls. Its methods are called concurrently and must not block.
type Observer interface {
	// Called reports a call that has ended: its verb, the plugin's type, the outcome of its error
	// (empty without one), and how long it took, with the wait for a plugin of a previous run.
	Called(verb, plugin string, outcome call.Outcome, took time.Duration)
	// Running reports that a plugin process is about to start (1) or has ended (-1).
	Running(change int)
}

type noObserver struct{}

func (noObserver) Called(string, string, call.Outcome, time.Duration) {}
func (noObserver) Running(int)                                        {}

// checked returns the options with defaults filled in, or an error that names the option, its value
// and what was expected.
func (o Options) checked() (Options, error) {
	if len(o.BinDirs) == 0 {
		return o, errors.New("--cni-bin-dir is empty; expected at least one directory of CNI plugins")
	}
	for _, name := range o.Env {
		if name == "" || strings.HasPrefix(name, "CNI_") || strings.ContainsAny(name, "=\x00") {
			return o, fmt.Errorf("--plugin-env %q: expected the name of a variable that does not begin with CNI_; those are set for each call", name)
		}
	}
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.Log == nil {
		o.Log = logging.Discard()
	}
	return o, nil
}
