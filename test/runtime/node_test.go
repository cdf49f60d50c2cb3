// Package runtime tests delegated-ipam-cni under a real containerd: its CRI plugin with runc, the real
// bridge and host-local, and the daemon. "make runtime-test" builds the programs and runs the tests in
// separate namespaces; plain "go test" skips them.
package runtime

import (
	"bufio"
	"context"
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
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

const (
	// The directories and the socket of containerd's defaults, empty in the namespaces of run.sh.
	rootDir, stateDir, netnsDir = "/var/lib/containerd", "/run/containerd", "/run/netns"
	socket                      = stateDir + "/containerd.sock"
	image                       = "localhost/runtime-test/sandbox:1"
	network                     = "pods"
	// convergeTimeout is long enough for a busy machine, and for the five minutes after which a
	// container that the runtime does not know is released.
	convergeTimeout = 10 * time.Minute
)

// node is a machine with a containerd and a daemon.
type node struct {
	*harness.Node
	// logs is the directory of the logs.
	logs       string
	containerd *cluster.Program
	runtimeapi.RuntimeServiceClient
}

// newNode returns a node without CNI configuration and processes. It skips the test outside run.sh.
func newNode(t *testing.T) *node {
	t.Helper()
	cluster.SkipUnless(t, "runtime-test")
	n := &node{Node: harness.NewNode(t), logs: cluster.EmptyDir(t, env(t, "DIR"), "logs", t.Name())}
	// ctr has no flags for these two.
	n.ConfDir, n.BinDir = "/etc/cni/net.d", "/opt/cni/bin"
	cluster.RunLines(t, "mount --make-shared /run", "mkdir -p /run/etc /run/etc-work",
		"mount -t overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/etc-work overlay /etc")
	t.Cleanup(func() { cluster.RunLines(t, "umount /etc") })
	n.mountNetNS("slave", `mount --rbind "$0" "$0"`)
	cluster.EmptyDir(t, n.ConfDir)
	cluster.EmptyDir(t, n.BinDir)
	for _, name := range []string{"host-local", "bridge", "loopback"} {
		n.InstallPlugin(t, name)
	}
	cluster.RunLines(t, "cp "+filepath.Join(env(t, "BIN"), "delegated-ipam-cni")+" "+n.BinDir)
	n.Flags = []string{"--enable-ipv6=false"}
	return n
}

// mountNetNS makes the next daemons run in their own mount namespace, with a command that mounts the
// directory of the network namespaces, as a container does.
func (n *node) mountNetNS(propagation, command string) {
	n.Wrapper = []string{"unshare", "--mount", "--propagation", propagation, "sh", "-c", `mkdir -p "$0" && ` + command + ` && exec "$@"`, netnsDir}
}

func env(t *testing.T, name string) string {
	t.Helper()
	return cluster.MustEnv(t, "RUNTIME_TEST_"+name, "runtime-test")
}

type section = map[string]any

func (n *node) hostLocal(subnet string) section {
	return section{"type": "host-local", "dataDir": n.StoreDir, "ranges": [][]section{{{"subnet": subnet}}}}
}

// through returns the ipam section that calls the plugin through the daemon.
func (n *node) through(delegate section) section {
	return section{"type": "delegated-ipam-cni", "socket": n.Socket, "spool": n.Spool(), "delegate": delegate}
}

// configure writes the network of the pods: the bridge, then chained plugins without a configuration.
func (n *node) configure(t *testing.T, ipam section, chained ...string) {
	t.Helper()
	plugins := []section{{"type": "bridge", "bridge": "cni0", "ipam": ipam}}
	for _, name := range chained {
		plugins = append(plugins, section{"type": name})
	}
	n.writePlugins(t, plugins...)
}

func (n *node) writePlugins(t *testing.T, plugins ...section) {
	t.Helper()
	data, err := json.Marshal(section{"cniVersion": "1.0.0", "name": network, "plugins": plugins})
	check.Must(t, err)
	n.WriteConf(t, "10-pods.conflist", data)
}

// startContainerd starts containerd over the directories as they are, and imports the image.
func (n *node) startContainerd(t *testing.T) {
	t.Helper()
	config := filepath.Join(n.logs, "containerd.toml")
	// A machine may lack CAP_SYS_RESOURCE, which a negative oom_score_adj takes.
	check.Must(t, os.WriteFile(config, []byte(`version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "`+image+`"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
`), 0o600))
	if n.containerd == nil {
		n.containerd = cluster.NewProgram(t, n.logs, "containerd", nil, "containerd", "--config", config)
		t.Cleanup(func() { n.loseState(t) })
	}
	now := n.containerd.MustStart(t)
	if n.RuntimeServiceClient == nil {
		connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		check.Must(t, err)
		t.Cleanup(func() { connection.Close() })
		n.RuntimeServiceClient = runtimeapi.NewRuntimeServiceClient(connection)
	}
	cluster.MustEventually(t, "containerd to be ready", convergeTimeout, func() error {
		if !now.Running() {
			t.Fatalf("containerd ended; see %s", n.logs)
		}
		got, err := n.Status(t.Context(), &runtimeapi.StatusRequest{})
		for _, c := range got.GetStatus().GetConditions() {
			// Another condition is about deprecated settings.
			if ready := c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady; ready && !c.GetStatus() {
				err = errors.Join(err, fmt.Errorf("%s: %s", c.GetType(), c.GetMessage()))
			}
		}
		return err
	})
	for _, namespace := range []string{"k8s.io", "default"} {
		cluster.RunLines(t, "ctr -n "+namespace+" images import "+filepath.Join(env(t, "DIR"), "sandbox.tar"))
	}
}

// loseState ends containerd, its shims and containers as a restart of a machine in a container does: without
// a DEL, and with directories and network namespaces removed. The boot ID stays.
func (n *node) loseState(t *testing.T) {
	t.Helper()
	n.containerd.End(syscall.SIGKILL)
	// Not the context of the test, which has ended in a cleanup.
	check.Must(t, cluster.Eventually(context.Background(), convergeTimeout, func() error {
		left, err := containerProcesses()
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			err = errors.Join(err, fmt.Errorf("process %d runs", pid))
		}
		return err
	}))
	check.Must(t, errors.Join(removeNetNS(), unmountBelow(rootDir, stateDir), os.RemoveAll(rootDir), os.RemoveAll(stateDir)))
}

// removeNetNS removes the network namespaces. It keeps their directory: the mounts on it in other mount
// namespaces would end.
func removeNetNS() error {
	err := unmountBelow(netnsDir)
	files, globErr := filepath.Glob(netnsDir + "/*")
	err = errors.Join(err, globErr)
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// containerProcesses returns the processes of containers and their shims. No others have the PID
// namespace of the test.
func containerProcesses() ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	var found []int
	for _, dir := range dirs {
		name, _ := os.ReadFile(filepath.Join(dir, "comm")) // the process may have ended
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		if !strings.HasPrefix(string(name), "containerd-shim") && !strings.Contains(string(groups), os.Getenv("RUNTIME_TEST_CGROUP")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			found = append(found, pid)
		}
	}
	return found, err
}

func unmountBelow(dirs ...string) error {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer file.Close()
	var points []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		point := strings.Fields(lines.Text())[4]
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(point, dir+"/") }) {
			points = append(points, point)
		}
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		errs = append(errs, unix.Unmount(point, unix.MNT_DETACH))
	}
	return errors.Join(errs...)
}

// run starts a sandbox and returns its ID.
func (n *node) run(ctx context.Context, name string, attempt uint32) (string, error) {
	got, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata:  &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "default", Attempt: attempt},
		DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}}, // the machine's may be below /run
		Linux:     &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/" + os.Getenv("RUNTIME_TEST_CGROUP")},
	}})
	return got.GetPodSandboxId(), err
}

func (n *node) mustRun(t *testing.T, name string) string {
	t.Helper()
	id, err := n.run(t.Context(), name, 0)
	check.Must(t, err)
	return id
}

// runAll starts sandboxes concurrently.
func (n *node) runAll(ctx context.Context, count int) []error {
	errs := make([]error, count)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = n.run(ctx, fmt.Sprint("pod-", i), 0) })
	}
	all.Wait()
	return errs
}

func (n *node) stop(ctx context.Context, id string) error {
	_, err := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

func (n *node) remove(ctx context.Context, id string) error {
	_, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// address returns the address that containerd reports for a sandbox; the zero one if it has none.
func (n *node) address(ctx context.Context, id string) (netip.Addr, error) {
	got, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil || got.GetStatus().GetNetwork().GetIp() == "" {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(got.GetStatus().GetNetwork().GetIp())
}

// leases returns the addresses that containerd reports, as the leases that they must be.
func (n *node) leases(ctx context.Context) ([]oracle.Lease, error) {
	list, err := n.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	var all []oracle.Lease
	for _, item := range list.GetItems() {
		ip, ipErr := n.address(ctx, item.GetId())
		err = errors.Join(err, ipErr)
		all = append(all, oracle.Lease{Network: network, IP: ip, ContainerID: item.GetId(), Interface: "eth0"})
	}
	return all, err
}

// consistent returns nil if containerd, the daemon's list and host-local's store have the same count of
// containers, with the same addresses, and no DEL waits.
func (n *node) consistent(ctx context.Context, count int) error {
	reported, reportErr := n.leases(ctx)
	listed, listErr := n.Client().TryList()
	stored, storeErr := n.Store()
	errs := errors.Join(reportErr, listErr, storeErr, oracle.Compare(stored, harness.Leases(listed)))
	if err := oracle.Compare(stored, reported); err != nil {
		errs = errors.Join(errs, fmt.Errorf("containerd instead of the list: %w", err))
	}
	if len(reported) != count || len(listed) != count || len(stored) != count {
		errs = errors.Join(errs, fmt.Errorf("containerd has %d containers, the list %d, the store %d; want %d", len(reported), len(listed), len(stored), count))
	}
	if left := n.spooled(); len(left) > 0 {
		errs = errors.Join(errs, fmt.Errorf("the spool has %q", left))
	}
	return errs
}

func (n *node) waitConsistent(t *testing.T, count int) {
	t.Helper()
	cluster.MustEventually(t, fmt.Sprintf("containerd, daemon and host-local to agree on %d containers", count), convergeTimeout,
		func() error { return n.consistent(t.Context(), count) })
}

// spooled returns the files of the spool, also those in quarantine.
func (n *node) spooled() []string {
	var found []string
	for _, pattern := range []string{"*", "*/*"} {
		names, _ := filepath.Glob(filepath.Join(n.Spool(), pattern)) // the pattern is valid
		found = append(found, slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name) == "quarantine" })...)
	}
	return found
}

func (n *node) ctr(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("ctr", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, &stderr)
	}
	return string(out)
}
