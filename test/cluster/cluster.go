// Package cluster runs a real etcd and a real kube-apiserver for tests, with controllers and scheduler
// if a test has nodes, and talks to them as an administrator. build.sh builds the programs; etcd is
// the distribution's.
package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// admin is the token of the administrator.
const admin = "admin"

// Config describes a cluster.
type Config struct {
	// Dir gets certificates, logs, the data of etcd and admin.kubeconfig.
	Dir string
	// APIServer is the path of kube-apiserver; etcd is in the same directory.
	APIServer string
	// Host is the address of the API server, which exists in its network namespace and is not
	// a loopback address.
	Host string
	// Exec is a command that executes etcd and kube-apiserver, such as "ip netns exec NAME";
	// empty for none.
	Exec []string
	// ServiceAccounts are the service accounts that have tokens. A service account is
	// NAMESPACE:NAME, and so is its token.
	ServiceAccounts []string
	// Flags are further flags of kube-apiserver.
	Flags []string
	// Controllers adds the controller manager and the scheduler; nil for none.
	Controllers *Controllers
}

// Cluster is a running etcd and kube-apiserver.
type Cluster struct {
	// Kube is the administrator's client.
	Kube
	// APIServer may be ended and started again; etcd keeps the objects.
	APIServer *Program

	config Config
	ca     string
}

// Start starts etcd and kube-apiserver and waits until the API server is ready. Both end with the
// test.
func Start(t testing.TB, config Config) *Cluster {
	t.Helper()
	in := func(name string) string { return filepath.Join(config.Dir, name) }
	files := makeCertificates(t, config.Dir, config.addresses()...)
	tokens := in("tokens.csv")
	harness.Must(t, os.WriteFile(tokens, config.tokens(), 0o600))
	program := func(name string, args ...string) *Program {
		return NewProgram(t, config.Dir, name, nil, slices.Concat(config.Exec, args)...)
	}

	program("etcd", filepath.Join(filepath.Dir(config.APIServer), "etcd"),
		"--data-dir="+in("etcd"),
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380",
		"--unsafe-no-fsync=true", // it is never killed
	).MustStart(t)
	c := &Cluster{config: config, ca: files.serving}
	c.APIServer = program("kube-apiserver", append([]string{
		config.APIServer,
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port=6443", "--advertise-address=" + config.Host,
		"--tls-cert-file=" + files.serving, "--tls-private-key-file=" + files.servingKey,
		"--token-auth-file=" + tokens, "--authorization-mode=Node,RBAC",
		"--service-account-key-file=" + files.accountPublic, "--service-account-signing-key-file=" + files.accountKey,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
		"--profiling=false", "--allow-privileged=true",
	}, slices.Concat(config.admission(), config.Flags)...)...)
	c.APIServer.MustStart(t)
	c.Kube = newKube(t, c.WriteKubeconfig(t, "admin", admin, "default"))
	c.WaitReady(t)
	if config.Controllers != nil {
		for name, args := range config.Controllers.commands(c.path("admin.kubeconfig"), files) {
			program(name, args...).MustStart(t)
		}
	}
	return c
}

// path returns a path in the cluster's directory.
func (c *Cluster) path(name string) string { return filepath.Join(c.config.Dir, name) }

// WaitReady waits until the API server responds.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	MustEventually(t, "the API server to be ready", 3*time.Minute, c.ready)
}

// URL returns the address of the API server.
func (c *Cluster) URL() string { return "https://" + c.config.Host + ":6443" }

// tokens returns the token file of the API server. The tokens identify the clients.
func (config Config) tokens() []byte {
	lines := fmt.Appendf(nil, "%s,admin,1,system:masters\n", admin)
	for i, account := range config.ServiceAccounts {
		lines = fmt.Appendf(lines, "%s,system:serviceaccount:%s,%d,\"system:serviceaccounts,system:authenticated\"\n", account, account, i+2)
	}
	if config.Controllers != nil {
		for i, node := range config.Controllers.Nodes {
			lines = fmt.Appendf(lines, "%s,system:node:%s,node-%d,system:nodes\n", node, node, i)
		}
	}
	return lines
}

// As returns the client of another user. name is the name of the kubeconfig that it writes.
func (c *Cluster) As(t testing.TB, name, token string) Kube {
	t.Helper()
	return newKube(t, c.WriteKubeconfig(t, name, token, "default"))
}

// WriteKubeconfig writes NAME.kubeconfig into the cluster's directory, and returns its path. The
// token belongs to a service account or a node of the configuration, or to a pod.
func (c *Cluster) WriteKubeconfig(t testing.TB, name, token, namespace string) string {
	t.Helper()
	file := c.path(name + ".kubeconfig")
	harness.Must(t, os.WriteFile(file, fmt.Appendf(nil, strings.TrimLeft(`
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: %q}}]
current-context: test
`, "\n"), c.URL(), c.ca, token, namespace), 0o600))
	return file
}
