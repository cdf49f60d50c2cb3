package delegate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// What Options hold when a field is left at its zero value.
const (
	// DefaultIfName is CNI_IFNAME (docs/command-line.md, serve).
	DefaultIfName = "eth0"
	// DefaultNetNS is a path that nobody makes: a plugin built with the CNI
	// skeleton accepts it, and it can never be the plugin's own namespace.
	DefaultNetNS = "/var/run/netns/delegated-ipam-does-not-exist"
	// DefaultTimeout leaves room for two calls and their ends in the 80 s of a request.
	DefaultTimeout = 30 * time.Second
	// DefaultGrace is how long a plugin may clean up: host-local killed in the
	// middle of a write leaves a file that no verb can free.
	DefaultGrace = 5 * time.Second
)

// EphemeralNetNS as Options.NetNS makes a network namespace for each call and
// removes it afterwards. It needs CAP_SYS_ADMIN.
const EphemeralNetNS = "ephemeral"

// Options say how plugins are found and run.
type Options struct {
	// BinDirs are the folders in which plugins are looked for, best first
	// (--cni-bin-dir). Required.
	BinDirs []string
	// IfName is CNI_IFNAME; empty for DefaultIfName (--cni-ifname).
	IfName string
	// NetNS is CNI_NETNS: an absolute path, EphemeralNetNS, or empty for what
	// the plugin's profile says (--cni-netns).
	NetNS string
	// AcceptUnsafe uses plugins whose profile says that they are unsafe
	// (--accept-unsafe-plugin).
	AcceptUnsafe bool
	// Timeout bounds one plugin call, and the wait for a plugin of an earlier
	// life; 0 for DefaultTimeout (--plugin-timeout).
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL; 0 for DefaultGrace.
	Grace time.Duration
	// Env names variables of this process that plugins get too (--plugin-env).
	// Names that begin with CNI_ are refused.
	Env []string
	// LockFile is the file of the inherited locks; made if it is not there. It
	// must be the same one after a restart. Required.
	LockFile string
	// LockDir is the open folder in which LockFile lies, so that none is made in a
	// folder that replaced it; nil to open LockFile by its path.
	LockDir *os.File
	// InPod tells that this process runs in a pod, where the plugin's state folder
	// must be a mount of the host's.
	InPod bool
	// Profiles returns what is known of plugin types now: a set as profile.Load
	// makes it, or why there is none. It is asked for each new invocation, by
	// several at once. Required.
	Profiles func() (profile.Set, error)
	// Log gets one debug line for each call; nil for none.
	Log logrus.FieldLogger
	// Observer is told of each call; nil for none.
	Observer Observer
}

// complete returns the options with defaults filled in, or an error that names
// the option, what it got and what it takes.
func (o Options) complete() (Options, error) {
	if len(o.BinDirs) == 0 {
		return o, fmt.Errorf("--cni-bin-dir is empty; expected at least one folder of CNI plugins")
	}
	dirs := make([]string, 0, len(o.BinDirs))
	for _, dir := range o.BinDirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return o, fmt.Errorf("--cni-bin-dir %q: %w", dir, err)
		}
		dirs = append(dirs, abs)
	}
	o.BinDirs = dirs
	if o.LockFile == "" {
		return o, fmt.Errorf("the lock file of plugin calls is not set; expected a path inside --state-dir")
	}
	if o.Profiles == nil {
		return o, fmt.Errorf("there are no plugin profiles; expected a function that returns them")
	}
	for _, name := range o.Env {
		if name == "" || strings.HasPrefix(name, "CNI_") || strings.ContainsAny(name, "=\x00") {
			return o, fmt.Errorf("--plugin-env %q: expected the name of a variable that does not begin with CNI_; those are set for each call", name)
		}
	}
	return o.withDefaults()
}

func (o Options) withDefaults() (Options, error) {
	if o.Timeout < 0 || o.Grace < 0 {
		return o, fmt.Errorf("--plugin-timeout is %s and the grace after it %s; expected durations above 0", o.Timeout, o.Grace)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.IfName == "" {
		o.IfName = DefaultIfName
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	if o.Log == nil {
		o.Log = silentLog()
	}
	return o, nil
}

func silentLog() logrus.FieldLogger {
	l := logrus.New()
	l.SetLevel(logrus.PanicLevel)
	return l
}
