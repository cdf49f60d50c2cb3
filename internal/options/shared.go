package options

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// Output formats of a command (--output).
const (
	OutputTable = "table"
	OutputJSON  = "json"
	OutputWide  = "wide" // a table with more columns, of commands that have it
)

// Formats of the log (--log-format).
const (
	LogText = "text"
	LogJSON = "json"
)

// Recipients of the details of GET /v1/healthz (--health-details).
const (
	HealthAll        = "all"
	HealthAuthorized = "authorized"
)

// Log is the options of the log, which all programs have.
type Log struct {
	LogLevel  string // as logrus names it, from error to trace
	LogFormat string // LogText or LogJSON
}

// declare declares them; reload is the end of the help of --log-level.
func (l *Log) declare(reload string) []Option {
	// Neither program logs at the levels panic and fatal.
	levels := []string{"error", "warning", "info", "debug", "trace"}
	return []Option{
		{Name: "log-level", Value: chosen(&l.LogLevel, logLevel, levels), Default: "info", Help: "least severe level to log" + reload},
		{Name: "log-format", Value: Choice(&l.LogFormat, LogText, LogJSON), Default: LogText, Help: "format of the log, which goes to stderr"},
	}
}

// logLevel accepts the spellings that logrus accepts.
func logLevel(name string) string {
	if name = strings.ToLower(name); name == "warn" {
		return "warning"
	}
	return name
}

// nodeName declares the name of the node, with the default of cilium-agent (Cilium's
// pkg/node/types): $K8S_NODE_NAME, else the host name.
func nodeName(target *string, env map[string]string, help, expected string) Option {
	o := Option{
		Name: "node-name", Value: Text(target, "name"), Default: env["K8S_NODE_NAME"], DefaultText: "$K8S_NODE_NAME, else the host name",
		Help: help, Valid: func() bool { return *target != "" }, Expected: expected,
	}
	if o.Default == "" {
		o.Default, _ = os.Hostname() // without one the option is not valid
	}
	return o
}

// podReference is the name of a pod, with or without its namespace. It is large when it is compiled.
const podReference = `^([a-z0-9-]{1,63}/)?[a-z0-9.-]{1,253}$`

// podName declares the name of the pod, with the default $K8S_POD_NAME.
func podName(target *string, env map[string]string) Option {
	return Option{
		Name: "pod-name", Value: Text(target, "name"), Default: env["K8S_POD_NAME"], DefaultText: "$K8S_POD_NAME",
		Help:  "name of this pod, or NAMESPACE/NAME, by which messages identify this daemon (empty = by host and PID)",
		Valid: func() bool { return *target == "" || regexp.MustCompile(podReference).MatchString(*target) }, Expected: "the name of a pod such as delegated-ipam-x7k2p; in a pod, set K8S_POD_NAME from metadata.name",
	}
}

// kubeconfig declares the credentials of a client of the API server.
func kubeconfig(target *string) Option {
	return Option{Name: "kubeconfig", Value: Path(target), Help: "kubeconfig file for the API server (empty = service account of the pod)"}
}

// metricsAndProbes is the help of --metrics-address of a program that also serves probes there.
const metricsAndProbes = "TCP address to serve /metrics, /readyz and /healthz on; :port is loopback only (empty = none)"

func metricsAddress(target *string, help string) Option {
	return Option{
		Name: "metrics-address", Value: Text(target, "host:port"), Help: help,
		Valid: func() bool {
			_, err := ListenAddress(*target)
			return err == nil
		},
		Expected: expectedListenAddress,
	}
}

// singleNode declares the confirmation that the cluster has one node, which both programs have.
func singleNode(target *bool) Option {
	return Option{
		Name: "single-node", Value: Bool(target),
		Help: "accept one range for all nodes although the plugin knows only the allocations of its node: for a cluster of one node (docs/install/ranges.md)",
	}
}

// ListenAddress completes the value of --metrics-address: the loopback address unless a host is
// named; empty for none. The error is that text is not host:port.
func ListenAddress(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return "", fmt.Errorf("--metrics-address is %q; expected %s", text, expectedListenAddress)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

const expectedListenAddress = "host:port, or :port for loopback only"

const unixScheme = "unix://"

// SocketEnv is the environment variable that names the socket to clients: a path, as for Cilium's own
// client (internal/defaults of Cilium, SockPathEnv).
const SocketEnv = "CILIUM_SOCK"

// Host declares the option that names the socket of the daemon to a client, as cilium-dbg has
// it: unix:///path or a bare path. Its default is not checked: a client reports a path from the
// environment that does not exist.
func Host(target *string, env map[string]string) Option {
	const socket = unixScheme + client.DefaultSocket
	*target = unixScheme + strings.TrimPrefix(cmp.Or(env[SocketEnv], client.DefaultSocket), unixScheme)
	return Option{
		Name: "host", Short: "H", DefaultText: "$" + SocketEnv + ", else " + socket,
		Help:  "socket of the daemon; a bare path is accepted",
		Value: socketValue(target, "the path of a unix socket, such as "+socket, func(path string) bool { return path != "" }),
	}
}

// socketValue accepts a path that is valid, with the scheme unix or without one.
func socketValue(target *string, expected string, valid func(path string) bool) *Value {
	return scalar(target, "unix:///path", expected, func(text string) (string, error) {
		path := Socket(text)
		if !valid(path) || strings.Contains(path, "://") {
			return "", strconv.ErrSyntax
		}
		return unixScheme + path, nil
	})
}

// Socket returns the path in a value of --host.
func Socket(host string) string { return strings.TrimPrefix(host, unixScheme) }

// Output declares the output format of a command, which may have more than a table and JSON.
func Output(target *string, more ...string) Option {
	return Option{Name: "output", Short: "o", Value: Choice(target, append([]string{OutputTable, OutputJSON}, more...)...), Default: OutputTable, Help: "output format"}
}

// clusterKubeconfig declares the credentials of a command that an operator may run outside a pod.
func clusterKubeconfig(target *string) Option {
	return Option{
		Name: "kubeconfig", Value: Path(target),
		Help: "kubeconfig file for the API server (empty = $KUBECONFIG, else ~/.kube/config, else the service account of the pod)",
	}
}
