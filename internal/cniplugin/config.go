package cniplugin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/internal/spool"
)

const (
	// defaultSocket is the path at which the daemon serves unless --socket-path is given.
	defaultSocket = "/var/run/delegated-ipam/ipam.sock"
	// defaultTimeout limits one call. The daemon responds within 80 s, and kubelet ends a
	// StopPodSandbox after 120 s and a RunPodSandbox after 240 s (--runtime-request-timeout).
	defaultTimeout = 90 * time.Second
	maxTimeout     = 110 * time.Second
	// daemonWait limits how long a call is repeated while the daemon is stopped or rejects it for
	// now. A failed ADD is followed by a DEL of cilium-cni or containerd, whose calls have no limit;
	// both waits end long before kubelet's 240 s, and it repeats the start of the pod after 10 to 15 s.
	daemonWait = 20 * time.Second
	// delWait is daemonWait for a DEL, which can be left for the daemon: a pod ends without it.
	delWait = 5 * time.Second
	// statusTimeout limits STATUS, and how long it waits for a daemon that restarts. It may be a part of
	// each status that kubelet requests from the runtime: every 5 s, and the node is not ready after 30 s
	// without one.
	statusTimeout = 5 * time.Second
	// statusInterval is the time between two questions to a daemon that is not ready.
	statusInterval = 250 * time.Millisecond
)

// config is the network configuration that the plugin reads on stdin: that of the plugin which
// delegates, with its ipam section.
type config struct {
	CNIVersion       string           `json:"cniVersion"`
	Name             string           `json:"name"`
	IPAM             ipam             `json:"ipam"`
	Args             json.RawMessage  `json:"args"`
	RuntimeConfig    json.RawMessage  `json:"runtimeConfig"`
	ValidAttachments validAttachments `json:"cni.dev/valid-attachments"`
}

// validAttachments is the list of GC. libcni writes an empty list as null, so null is one, and only a
// missing key is not a list.
type validAttachments struct {
	given bool
	list  []types.GCAttachment
}

// UnmarshalJSON implements json.Unmarshaler; it is called for null, too.
func (v *validAttachments) UnmarshalJSON(data []byte) error {
	v.given = true
	return json.Unmarshal(data, &v.list)
}

type ipam struct {
	Type    string `json:"type"`
	Socket  string `json:"socket"`
	Timeout *int   `json:"timeout"`
	// Spool is the directory for a DEL that cannot be delivered.
	Spool string `json:"spool"`
	// Delegate is the ipam section of the delegated plugin. Only ADD and STATUS need it: multus up to
	// v4.3 passes nothing of the section to DEL but its type.
	Delegate json.RawMessage `json:"delegate"`
}

// delegate is an ipam section of another plugin, whose keys may mean anything but its type.
type delegate struct {
	Type     string          `json:"type"`
	Delegate json.RawMessage `json:"delegate"`
}

// example is a valid ipam section.
const example = `such as "ipam": {"type": "` + Type + `", "delegate": {"type": "host-local", "ranges": ...}}`

// parseConfig parses and checks the configuration of ADD and STATUS.
func parseConfig(stdin []byte) (*config, error) {
	return parse(stdin, (*config).checkDelegate)
}

// parseReduced parses and checks the configuration of DEL, CHECK and GC, whose callers may pass less.
func parseReduced(stdin []byte) (*config, error) {
	return parse(stdin, func(*config) error { return nil })
}

// parse parses the configuration of a verb, and checks it with the checks of each verb and of this one.
func parse(stdin []byte, ofVerb func(*config) error) (*config, error) {
	var c config
	if err := json.Unmarshal(stdin, &c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, fmt.Sprintf("the network configuration: %s", err), "expected "+example)
	}
	err := c.check()
	if err == nil {
		err = ofVerb(&c)
	}
	if err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("network %s: %s", c.Name, err), "correct the file in the runtime's CNI configuration directory")
	}
	return &c, nil
}

func (c *config) check() error {
	if c.IPAM.Type != Type {
		// The daemon finds the delegated plugin by this type.
		return fmt.Errorf("ipam.type is %q, and runs the binary of %s; expected %q", c.IPAM.Type, Type, Type)
	}
	if s := c.IPAM.Timeout; s != nil && (*s < 1 || *s > int(maxTimeout.Seconds())) {
		return fmt.Errorf("ipam.timeout is %d; expected 1 to %d, in seconds", *s, int(maxTimeout.Seconds()))
	}
	if s := c.spoolPath(); !filepath.IsAbs(s) {
		return fmt.Errorf("ipam.spool is %q; expected the absolute path of a directory, such as %s", s, spool.DefaultPath)
	}
	if s := c.daemon().socket; !filepath.IsAbs(s) {
		return fmt.Errorf("ipam.socket is %q; expected the absolute path of a unix socket, such as %s", c.IPAM.Socket, defaultSocket)
	}
	return nil
}

// spoolPath returns the directory for a DEL that cannot be delivered.
func (c *config) spoolPath() string { return cmp.Or(c.IPAM.Spool, spool.DefaultPath) }

// checkDelegate returns an error if the section names no plugin that allocates.
func (c *config) checkDelegate() error {
	var d *delegate
	if c.IPAM.Delegate != nil {
		if err := json.Unmarshal(c.IPAM.Delegate, &d); err != nil {
			return fmt.Errorf("ipam.delegate: %w; expected the ipam section of the plugin that allocates, %s", err, example)
		}
	}
	if d == nil || d.Type == "" {
		return fmt.Errorf("ipam.delegate names no plugin; expected the ipam section of the plugin that allocates, %s", example)
	}
	for path := "ipam.delegate"; d != nil; path += ".delegate" {
		if d.Type == Type {
			return fmt.Errorf("%s.type is %q, which would call itself; expected the plugin that allocates, %s", path, Type, example)
		}
		var nested *delegate
		if json.Unmarshal(d.Delegate, &nested) != nil {
			break // not an ipam section
		}
		d = nested
	}
	return nil
}

// daemon returns the daemon that the configuration names.
func (c *config) daemon() daemon {
	s := daemon{socket: strings.TrimPrefix(c.IPAM.Socket, "unix://"), timeout: defaultTimeout, wait: daemonWait}
	if c.IPAM.Socket == "" {
		s.socket = defaultSocket
	}
	if c.IPAM.Timeout != nil {
		s.timeout = time.Duration(*c.IPAM.Timeout) * time.Second
	}
	return s
}
