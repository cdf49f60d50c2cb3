// Package cniplugin is the CNI IPAM plugin delegated-ipam-cni: it sends each call of the container
// runtime to the daemon of the node, which runs the delegated plugin. The runtime starts a process
// for each call, so the package imports little: its time to start is a part of each pod's.
package cniplugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
)

// Type is the type of the plugin in a CNI configuration, and the name of its binary.
const Type = "delegated-ipam-cni"

// errFailed is the code of a call that the daemon or the delegated plugin refused. The CNI
// specification leaves codes from 100 on to plugins.
const errFailed uint = 100

// Main runs the call in the environment and on stdin of this process, or the command for the
// installation in its arguments, and returns the exit code.
func Main(build string) int {
	if len(os.Args) > 1 {
		return command(os.Args[1:], os.Stdout, os.Stderr)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		build = cmp.Or(build, info.Main.Version)
	}
	err := skel.PluginMainFuncsWithError(
		skel.CNIFuncs{Add: add, Del: del, Check: checkInterface, GC: gc, Status: status},
		version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"),
		"CNI plugin "+Type+" "+build)
	if err == nil {
		return 0
	}
	if os.Getenv("CNI_COMMAND") == "DEL" {
		err = delError(err)
	}
	if err := err.Print(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

// request is the body of add, del and check (swagger.yaml, CNIRequest).
type request struct {
	Network       string          `json:"network"`
	ContainerID   string          `json:"container-id"`
	IfName        string          `json:"ifname"`
	NetNS         string          `json:"netns,omitempty"`
	Args          string          `json:"args,omitempty"`
	CNIArgs       json.RawMessage `json:"cni-args,omitempty"`
	RuntimeConfig json.RawMessage `json:"runtime-config,omitempty"`
}

// gcRequest is the body of gc (swagger.yaml, CNIGCRequest).
type gcRequest struct {
	Network string       `json:"network"`
	Valid   []attachment `json:"valid-attachments"`
}

type attachment struct {
	ContainerID string `json:"container-id"`
	IfName      string `json:"ifname"`
}

func add(args *skel.CmdArgs) error {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	body, err := conf.send("add", conf.request(args))
	if err != nil {
		return err
	}
	return printResult(body, conf.CNIVersion)
}

func checkInterface(args *skel.CmdArgs) error {
	conf, err := parseReduced(args.StdinData)
	if err != nil {
		return err
	}
	_, err = conf.send("check", conf.request(args))
	return err
}

func gc(args *skel.CmdArgs) error {
	conf, err := parseReduced(args.StdinData)
	if err != nil {
		return err
	}
	// An absent list is not an empty one, which releases the addresses of all pods.
	if !conf.ValidAttachments.given {
		return types.NewError(types.ErrInvalidNetworkConfig,
			"the configuration of GC has no list of attachments; expected an array, which may be empty",
			"the runtime has to set cni.dev/valid-attachments")
	}
	valid := make([]attachment, len(conf.ValidAttachments.list))
	for i, a := range conf.ValidAttachments.list {
		valid[i] = attachment{a.ContainerID, a.IfName}
	}
	_, err = conf.send("gc", gcRequest{Network: conf.Name, Valid: valid})
	return err
}

// status reports code 50, with which the runtime starts no pods, unless the daemon is ready.
func status(args *skel.CmdArgs) error {
	conf, err := parseConfig(args.StdinData)
	if err != nil {
		return err
	}
	if err := conf.health(); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, err.Error(), "delegated-ipam doctor on the node shows why")
	}
	return nil
}

func (c *config) request(args *skel.CmdArgs) request {
	return request{
		Network: c.Name, ContainerID: args.ContainerID, IfName: args.IfName, NetNS: args.Netns,
		Args: args.Args, CNIArgs: c.Args, RuntimeConfig: c.RuntimeConfig,
	}
}

// send sends one call and returns the body of its response.
func (c *config) send(verb string, body any) ([]byte, error) { return sendTo(c.daemon(), verb, body) }

func sendTo(s daemon, verb string, body any) ([]byte, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	response, err := s.call("POST /v1/cni/"+verb, "", encoded)
	if err == nil {
		return response, nil
	}
	return nil, cniError(err)
}

// cniError returns the CNI error of a call that failed.
func cniError(err error) error {
	var refused *refusal
	switch {
	case errors.Is(err, errLater):
		return types.NewError(types.ErrTryAgainLater, err.Error(), "")
	case errors.As(err, &refused) && refused.code == 404:
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(),
			"the daemon has to read the same configuration as the runtime, and to support "+Type)
	case errors.As(err, &refused) && (refused.code == 400 || refused.code == 422):
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	default:
		return types.NewError(errFailed, err.Error(), "")
	}
}

// errNotReady is the answer of a daemon that cannot serve the network now.
var errNotReady = errors.New("the daemon is not ready")

// health returns why the daemon is not ready for the network. A daemon that restarts is waited for.
func (c *config) health() error {
	s := c.daemon()
	s.timeout = min(s.timeout, statusTimeout)
	s.wait = s.timeout
	for deadline := time.Now().Add(s.timeout); ; time.Sleep(statusInterval) {
		err := c.healthNow(s)
		mayEnd := errors.Is(err, errLater) || errors.Is(err, errNotReady)
		if !mayEnd || time.Now().Add(statusInterval).After(deadline) {
			return err
		}
		s.timeout = time.Until(deadline)
	}
}

// healthNow is health without the wait for a daemon that answers.
func (c *config) healthNow(s daemon) error {
	body, err := s.call("GET /v1/healthz", "brief: true\r\nnetwork: "+c.Name+"\r\n", nil)
	if err != nil {
		return err
	}
	var health struct{ Cilium struct{ State, Msg string } }
	if err := json.Unmarshal(body, &health); err != nil {
		return fmt.Errorf("the daemon answered a status that cannot be read: %w", err)
	}
	if health.Cilium.State != "Ok" {
		return fmt.Errorf("%w: its state is %q %s", errNotReady, health.Cilium.State, health.Cilium.Msg)
	}
	return nil
}

// printResult prints a result of the delegated plugin in the CNI version of the configuration.
func printResult(body []byte, cniVersion string) (err error) {
	is, err := (&version.ConfigDecoder{}).Decode(body)
	if err == nil && is == cniVersion { // usually, because the daemon reads the configuration of the runtime
		_, err := os.Stdout.Write(body)
		return err
	}
	// The library panics on null entries of a list.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			err = types.NewError(types.ErrDecodingFailure, fmt.Sprintf("the daemon answered a result that is not usable as one of CNI version %s: %s", cniVersion, err), "")
		}
	}()
	if is == "0.1.0" { // what the library takes for that of a result without one
		return errors.New("it has no cniVersion")
	}
	result, err := create.CreateFromBytes(body)
	if err != nil {
		return err
	}
	return types.PrintResult(result, cniVersion)
}
