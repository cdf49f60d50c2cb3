// Package whereabouts tests the daemon with the real whereabouts over a real kube-apiserver.
// "make plugin-test" builds the programs and runs the tests in separate namespaces; plain "go test"
// skips them. test/README.md describes requirements and tests.
package whereabouts

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

func TestMain(m *testing.M) {
	if !cluster.Namespaced() {
		os.Exit(m.Run()) // every test is skipped
	}
	harness.Main(m)
}

type cases map[string]func(*testing.T, *namespace)

// Trap: the behaviour of the real whereabouts. All cases use one API server, because starting it takes most of the time.
// Each case has its own Kubernetes namespace, and so its own IPPools.
func TestWhereabouts(t *testing.T) {
	tb := newTestbed(t)
	group := func(name string, all cases) {
		t.Run(name, func(t *testing.T) {
			for name, test := range all {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, tb.newNamespace(t))
				})
			}
		})
	}
	group("plugin", pluginCases)
	group("daemon", daemonCases)
	t.Run("controllers", func(t *testing.T) {
		for name, test := range controllerCases {
			t.Run(name, func(t *testing.T) { test(t, tb.newNamespace(t)) })
		}
	})
	t.Run("API server down", func(t *testing.T) { testServerDown(t, tb) })
}

const (
	// account is the service account of whereabouts' own manifest.
	account = "kube-system:whereabouts"
	// networkName is the name of the CNI network.
	networkName = "pods"
	// ipv4Range and ipv6Range are the ranges of each namespace.
	ipv4Range, ipv6Range = "10.15.0.0/24", "fd00:15::/112"
)

type testbed struct {
	*cluster.Cluster
	// built is the output directory of build.sh: bin, crds, install.
	built string
}

// newTestbed starts the cluster with whereabouts' CRDs and RBAC rules. It skips the test outside
// the namespaces of run.sh.
func newTestbed(t *testing.T) *testbed {
	cluster.SkipUnless(t, "plugin-test")
	tb := &testbed{built: cluster.MustEnv(t, "PLUGIN_TEST_DIR", "plugin-test")}
	tb.Cluster = cluster.Start(t, cluster.Config{
		Dir:             cluster.EmptyDir(t, tb.built, "run"),
		APIServer:       cluster.MustEnv(t, "PLUGIN_TEST_APISERVER", "plugin-test"),
		Host:            cluster.Host,
		ServiceAccounts: []string{account, reclaimAccount},
	})
	tb.CreateKinds(t, filepath.Join(tb.built, "crds"))
	tb.Apply(t, filepath.Join(tb.built, "install", "daemonset-install.yaml"))
	return tb
}

type namespace struct {
	*testbed
	name string
	// flatFile is whereabouts.conf.
	flatFile string
}

// newNamespace creates the namespace of a case, and the files with which whereabouts finds it.
func (tb *testbed) newNamespace(t *testing.T) *namespace {
	t.Helper()
	object := cluster.Object("v1", "Namespace", "")
	object.SetGenerateName("case-")
	created, err := tb.Resource("", "v1", "namespaces").Create(t.Context(), object, metav1.CreateOptions{})
	check.Must(t, err)
	ns := &namespace{testbed: tb, name: created.GetName(), flatFile: filepath.Join(t.TempDir(), "whereabouts.conf")}
	// As whereabouts' install script writes it.
	conf := asJSON(t, map[string]any{
		"datastore":  "kubernetes",
		"kubernetes": map[string]any{"kubeconfig": tb.WriteKubeconfig(t, ns.name, account, ns.name)},
	})
	check.Must(t, os.WriteFile(ns.flatFile, conf, 0o600))
	return ns
}

func (ns *namespace) ipam(subnets ...string) map[string]any {
	var ranges []map[string]string
	for _, subnet := range subnets {
		ranges = append(ranges, map[string]string{"range": subnet})
	}
	return map[string]any{"type": "whereabouts", "configuration_path": ns.flatFile, "ipRanges": ranges}
}

// newNode returns a node with whereabouts as the IPAM plugin of its network. At the end of the case
// the list of its daemon must equal the IPPools of the namespace.
func (ns *namespace) newNode(t *testing.T, subnets ...string) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	binary, err := os.ReadFile(filepath.Join(ns.built, "bin", "whereabouts"))
	check.Must(t, err)
	harness.WriteProgram(t, filepath.Join(n.BinDir, "whereabouts"), binary)
	n.WriteNetwork(t, "05-pods", harness.Network{Name: networkName, CNIVersion: "1.0.0", Plugin: "whereabouts", IPAM: ns.ipam(subnets...)})
	n.Store = ns.reservations
	n.Flags = []string{"--accept-unsafe-plugin"}
	if !strings.Contains(strings.Join(subnets, " "), ":") {
		n.Flags = append(n.Flags, "--enable-ipv6=false")
	}
	return n
}

func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	check.Must(t, err)
	return text
}

type invocation struct {
	verb, containerID, ifName string
	// args is CNI_ARGS.
	args string
	// subnets are the ranges of its configuration; empty for ipv4Range.
	subnets []string
	// node is the name of the node; empty if the plugin needs none.
	node string
	// ipam overrides keys of the ipam section; nil deletes one.
	ipam map[string]any
}

const (
	podA = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a"
	podB = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=b"
)

func add(containerID, args string) invocation {
	return invocation{verb: "ADD", containerID: containerID, ifName: "eth0", args: args}
}

func del(containerID, args string) invocation {
	return invocation{verb: "DEL", containerID: containerID, ifName: "eth0", args: args}
}

// run executes the plugin and returns the addresses of its result, with prefix lengths, or its
// error.
func (ns *namespace) run(t *testing.T, i invocation) (ips []string, failure error) {
	t.Helper()
	if i.subnets == nil {
		i.subnets = []string{ipv4Range}
	}
	ipam := ns.ipam(i.subnets...)
	for key, value := range i.ipam {
		if ipam[key] = value; value == nil {
			delete(ipam, key)
		}
	}
	bin := filepath.Join(ns.built, "bin")
	cmd := exec.Command(filepath.Join(bin, "whereabouts"))
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"CNI_COMMAND=" + i.verb, "CNI_CONTAINERID=" + i.containerID, "CNI_IFNAME=" + i.ifName,
		"CNI_ARGS=" + i.args, "CNI_NETNS=/run/netns/does-not-exist", "CNI_PATH=" + bin, "NODENAME=" + i.node,
	}
	cmd.Stdin = bytes.NewReader(asJSON(t, map[string]any{"cniVersion": "1.1.0", "name": networkName, "type": "cilium-cni", "ipam": ipam}))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var result struct {
		Msg, Details string
		IPs          []struct{ Address string }
	}
	if len(out) > 0 {
		if err := json.Unmarshal(out, &result); err != nil {
			t.Fatalf("%s printed %q: %v", i.verb, out, err)
		}
	}
	if exit != nil {
		return nil, errors.New(strings.TrimSpace(result.Msg + " " + result.Details))
	}
	for _, ip := range result.IPs {
		ips = append(ips, ip.Address)
	}
	return ips, nil
}

func (ns *namespace) mustRun(t *testing.T, i invocation, want ...string) {
	t.Helper()
	got, err := ns.run(t, i)
	check.Must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("%s returned %q; want %q", i.verb, got, want)
	}
}

func (ns *namespace) mustFail(t *testing.T, i invocation, text string) {
	t.Helper()
	if ips, err := ns.run(t, i); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s returned %q and the error %v; want an error with %q", i.verb, ips, err, text)
	}
}

type ipPool struct {
	Spec struct {
		Range string `json:"range"`
		// Allocations has the reservations by the offset of the address in the range.
		Allocations map[string]struct {
			ID     string `json:"id"`
			IfName string `json:"ifname"`
		} `json:"allocations"`
	} `json:"spec"`
}

func (ns *namespace) pools() dynamic.ResourceInterface {
	return ns.Resource("whereabouts.cni.cncf.io", "v1alpha1", "ippools").Namespace(ns.name)
}

// loseRange deletes the IPPool of an IPv6 range, with its reservations, and what keeps other ranges from them.
func (ns *namespace) loseRange(t *testing.T, subnet string) {
	t.Helper()
	list, err := ns.pools().List(t.Context(), metav1.ListOptions{})
	check.Must(t, err)
	for _, item := range list.Items {
		if of, _, _ := unstructured.NestedString(item.Object, "spec", "range"); of == subnet {
			check.Must(t, ns.pools().Delete(t.Context(), item.GetName(), metav1.DeleteOptions{}))
		}
	}
	for _, name := range ns.overlapping(t) {
		if strings.Contains(name, "-") { // of IPv6
			check.Must(t, ns.overlappingReservations().Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
	}
}

func (ns *namespace) overlappingReservations() dynamic.ResourceInterface {
	return ns.Resource("whereabouts.cni.cncf.io", "v1alpha1", "overlappingrangeipreservations").Namespace(ns.name)
}

// overlapping returns the names of the OverlappingRangeIPReservations, which are addresses.
func (ns *namespace) overlapping(t *testing.T) []string {
	t.Helper()
	list, err := ns.overlappingReservations().List(t.Context(), metav1.ListOptions{})
	check.Must(t, err)
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return names
}

func (ns *namespace) reservations() ([]oracle.Lease, error) {
	list, err := ns.pools().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []oracle.Lease
	for _, item := range list.Items {
		var pool ipPool
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pool); err != nil {
			return nil, err
		}
		prefix, err := netip.ParsePrefix(pool.Spec.Range)
		if err != nil {
			return nil, err
		}
		for text, a := range pool.Spec.Allocations {
			offset, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return nil, err
			}
			all = append(all, oracle.Lease{Network: networkName, IP: addOffset(prefix.Addr(), offset), ContainerID: a.ID, Interface: a.IfName})
		}
	}
	slices.SortFunc(all, func(a, b oracle.Lease) int { return a.IP.Compare(b.IP) })
	return all, nil
}

// addOffset adds an offset below 2^32 to the first address of a range.
func addOffset(first netip.Addr, offset uint64) netip.Addr {
	bytes := first.AsSlice()
	low := bytes[len(bytes)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+uint32(offset))
	ip, _ := netip.AddrFromSlice(bytes)
	return ip
}

func (ns *namespace) mustReservations(t *testing.T) []oracle.Lease {
	t.Helper()
	all, err := ns.reservations()
	check.Must(t, err)
	return all
}

// wantReserved wants exactly these reservations, each "ADDRESS CONTAINER_ID INTERFACE".
func (ns *namespace) wantReserved(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, l := range ns.mustReservations(t) {
		got = append(got, fmt.Sprintf("%s %s %s", l.IP, l.ContainerID, l.Interface))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the IPPools have the reservations %q; want %q", got, want)
	}
}
