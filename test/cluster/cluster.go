// Package cluster runs a real etcd and a real kube-apiserver for tests, with controllers and scheduler
// if a test has nodes, and talks to them as an administrator. build.sh builds the programs.
package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const (
	// Host is the address that run.sh adds to the loopback interface, for Config.Host.
	Host = "192.0.2.1"
	// ServiceAddress is the address of the service "kubernetes", the first of the services' range.
	ServiceAddress = "10.96.0.1"
	// admin is the token of the administrator.
	admin = "admin"
)

// SkipUnless skips a test that run.sh has not started, which a make target does.
func SkipUnless(t testing.TB, target string) {
	t.Helper()
	if !Namespaced() {
		t.Skipf("the test needs root, real programs and separate namespaces; run 'make %s'", target)
	}
}

// Namespaced reports whether run.sh has started the test.
func Namespaced() bool { return os.Getenv("DELEGATED_IPAM_TEST_NAMESPACED") != "" }

func EmptyDir(t testing.TB, path ...string) string {
	t.Helper()
	dir := filepath.Join(path...)
	check.Must(t, os.RemoveAll(dir))
	check.Must(t, os.MkdirAll(dir, 0o755))
	return dir
}

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

type Controllers struct {
	// ControllerManager and Scheduler are the paths of the programs.
	ControllerManager, Scheduler string
	// PodCIDRs are the ranges, separated by commas, of which each node gets a part as its podCIDRs:
	// a /24 of IPv4, a /64 of IPv6.
	PodCIDRs string
	// Nodes are the names of the nodes that have a token for their kubelet, which is the name.
	Nodes []string
}

type Cluster struct {
	Kube
	// APIServer may be ended and started again; etcd keeps the objects.
	APIServer *Program

	config Config
}

// Start starts etcd and kube-apiserver and waits until the API server is ready. Both end with the
// test.
func Start(t testing.TB, config Config) *Cluster {
	t.Helper()
	in := func(name string) string { return filepath.Join(config.Dir, name) }
	cert, certKey, accountKey := in("api.crt"), in("api.key"), in("accounts.key")
	makeKeys(t, config.Host, cert, certKey, accountKey)
	check.Must(t, os.WriteFile(in("tokens.csv"), config.tokens(), 0o600))
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
	// The admission plugin for service accounts refuses all pods if no controller creates the accounts.
	admission := []string{"--disable-admission-plugins=ServiceAccount"}
	if config.Controllers != nil {
		admission = []string{"--enable-admission-plugins=NodeRestriction", "--kubelet-preferred-address-types=InternalIP"}
	}
	c := &Cluster{config: config}
	c.APIServer = program("kube-apiserver", append([]string{
		config.APIServer,
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=::", "--secure-port=6443", "--advertise-address=" + config.Host,
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + certKey,
		"--token-auth-file=" + in("tokens.csv"), "--authorization-mode=Node,RBAC",
		"--service-account-key-file=" + accountKey, "--service-account-signing-key-file=" + accountKey,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=" + serviceRanges(config.Host),
		"--profiling=false", "--allow-privileged=true",
	}, slices.Concat(admission, config.Flags)...)...)
	c.APIServer.MustStart(t)
	admin := c.WriteKubeconfig(t, "admin", admin, "default")
	c.Kube = newKube(t, admin)
	c.WaitReady(t)
	if more := config.Controllers; more != nil {
		common := []string{"--kubeconfig=" + admin, "--leader-elect=false", "--bind-address=127.0.0.1"}
		program("kube-scheduler", append([]string{more.Scheduler}, common...)...).MustStart(t)
		program("kube-controller-manager", slices.Concat([]string{more.ControllerManager}, common, []string{
			"--service-account-private-key-file=" + accountKey, "--root-ca-file=" + cert,
			"--allocate-node-cidrs=true", "--cluster-cidr=" + more.PodCIDRs,
		})...).MustStart(t)
	}
	return c
}

// makeKeys writes the certificate of the API server, which it also signs, and the key of the service accounts.
func makeKeys(t testing.TB, host, cert, certKey, accountKey string) {
	t.Helper()
	ips := []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(ServiceAddress)}
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(host, ips, nil)
	check.Must(t, err)
	accountPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	check.Must(t, err)
	for file, text := range map[string][]byte{cert: certPEM, certKey: keyPEM, accountKey: accountPEM} {
		check.Must(t, os.WriteFile(file, text, 0o600))
	}
}

func (c *Cluster) path(name string) string { return filepath.Join(c.config.Dir, name) }

func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	MustEventually(t, "the API server to be ready", 3*time.Minute, c.ready)
}

func (c *Cluster) URL() string { return "https://" + net.JoinHostPort(c.config.Host, "6443") }

// serviceRanges returns the ranges of services, that of the API server's family first.
func serviceRanges(host string) string {
	const v4, v6 = "10.96.0.0/16", "fd00:96::/112"
	if strings.Contains(host, ":") {
		return v6 + "," + v4
	}
	return v4 + "," + v6
}

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
	check.Must(t, os.WriteFile(file, fmt.Appendf(nil, strings.TrimLeft(`
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: %q}}]
current-context: test
`, "\n"), c.URL(), c.path("api.crt"), token, namespace), 0o600))
	return file
}
